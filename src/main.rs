//! Arguments → configuration → start → wait for a signal → drain → exit code.
mod cli;

/// A create allocates on one thread and frees on another: glibc's allocator took a tenth of it (measured).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
