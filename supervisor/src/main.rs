//! The command `sallyport`.
use std::process::ExitCode;

fn main() -> ExitCode {
    // A machine's keeper enters namespaces, for which the process must have one thread only.
    sallyport_supervisor::machine::keeper::intercept(std::env::args_os())
        .unwrap_or_else(sallyport_supervisor::cli::main)
}
