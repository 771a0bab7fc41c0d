//! The device suite on the stand-in: real host code, real PTX, every thread executed and every access checked.

use corrnoise_cuda_suite::run;

fn main() {
    assert!(cuda::control::is_stand_in(), "another libcuda was found before target/*/deps/libcuda.so");
    let filters: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from).min(7);
    let streams: Vec<_> =
        (0..cores).map(|device| corrnoise_cuda::stream(device).expect("a device")).collect();
    let outcome = run(&streams, &filters);
    println!("test result: {} passed; {} failed\n", outcome.passed, outcome.failed);
    std::process::exit(i32::from(outcome.failed > 0));
}
