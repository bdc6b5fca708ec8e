//! The program: parses arguments, runs one command, and exits with its code.
// `eprintln!` panics where stderr cannot be written; `print_message` does not.
#![warn(clippy::print_stderr)]

mod cli;

/// A create allocates on one thread and frees on another, and so does Kafka's client with each record: glibc's allocator took a tenth of
/// either (measured). Libraries in C use this allocator too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::run()
}
