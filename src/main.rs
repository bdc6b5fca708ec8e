//! Arguments → configuration → start → wait for a signal → drain → exit code.
mod cli;

/// A create allocates on one thread and frees on another, and so does Kafka's client with each record: glibc's allocator took a tenth of
/// either (measured). For the libraries in C, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
