//! The version and the commit that the program was built from.

/// The version of the workspace, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The value of `POSTHASTE_COMMIT` during the build, such as `4f2a91c`. `make install`, the image and the release workflow set it; a plain
/// `cargo build` does not, so that a commit rebuilds nothing.
pub const COMMIT: &str = match option_env!("POSTHASTE_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => UNKNOWN_COMMIT,
};

/// The value of [`COMMIT`] where the build did not set one.
pub const UNKNOWN_COMMIT: &str = "unknown";
