//! The binary `corrnoise`; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    corrnoise_cli::main()
}
