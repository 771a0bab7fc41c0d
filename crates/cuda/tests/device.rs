//! The device suite on a real driver: `CARGO_TARGET_DIR=target/gpu cargo test --release -p corrnoise-cuda`.
//!
//! Without a GPU it runs nothing and says so. In a target folder where the stand-in was built, cargo's library path leads there
//! before the driver; that is why a GPU is tested in a folder of its own.

use corrnoise_cuda_suite::{TESTS, run};

fn main() {
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let stream = match corrnoise_cuda::stream(0) {
        Ok(stream) => stream,
        Err(error) => return println!("\nNO GPU, {} tests NOT RUN: {error}\n", TESTS.len()),
    };
    let name = stream.context().name().unwrap_or_default();
    if name.contains("stand-in") {
        return println!(
            "\nNO GPU, {} tests NOT RUN here: {name} hides any driver in this target folder\n",
            TESTS.len()
        );
    }
    let outcome = run(&[stream], &filters);
    println!("test result: {} passed; {} failed, on {name}\n", outcome.passed, outcome.failed);
    std::process::exit(i32::from(outcome.failed > 0));
}
