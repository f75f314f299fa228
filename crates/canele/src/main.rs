//! The `canele` command: what this installation is, and what it would do.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("info") => {
            println!("Canele {}: MPI 5.0, ABI 1.0", env!("CARGO_PKG_VERSION"));
            println!("rails            self, shm, tcp (CANELE_RAILS)");
            println!("interface        {}", variable("CANELE_IFACE", "any"));
            println!("connect timeout  {} s", variable("CANELE_CONNECT_TIMEOUT", "30"));
            ExitCode::SUCCESS
        }
        Some("lab") => lab::run(&arguments[1..]),
        Some("-V" | "--version") => {
            println!("canele {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(other) if other != "-h" && other != "--help" => {
            eprintln!("canele: no command `{other}`; there are: lab, info");
            ExitCode::from(2)
        }
        _ => {
            println!("canele info       what this installation is and how it is set");
            print!("{}", lab::HELP);
            println!("canele --version");
            ExitCode::SUCCESS
        }
    }
}

fn variable(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.into())
}
