//! Arguments → configuration → start → wait for a signal → drain → exit code.
mod cli;

fn main() -> std::process::ExitCode {
    cli::run()
}
