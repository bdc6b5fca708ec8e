//! The operator on whose behalf a command runs.

/// The name for the audit table: the user who called sudo rather than root.
pub(super) fn operator() -> String {
    let name = |variable: &&str| std::env::var(variable).ok().filter(|name| !name.is_empty());
    let named = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(name);
    named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}
