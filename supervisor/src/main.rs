//! The command `sallyport`.
use sallyport_supervisor::{cli, machine::keeper};
use std::process::ExitCode;

fn main() -> ExitCode {
    // A machine's keeper enters namespaces, which only a process with one thread can: nothing may come before it.
    keeper::intercept(std::env::args_os()).unwrap_or_else(cli::main)
}
