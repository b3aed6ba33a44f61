//! The command `sallyport`.
use std::process::ExitCode;

fn main() -> ExitCode {
    sallyport_supervisor::cli::main()
}
