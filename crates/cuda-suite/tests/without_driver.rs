//! A program with the feature `cuda` on a machine without libcuda starts, reports that as an error value, and uses the CPU.

use std::process::Command;

#[test]
fn a_program_with_cuda_runs_without_a_driver() {
    // Cargo's library path may lead to the stand-in; without it there is only what the system has.
    let output =
        Command::new(env!("CARGO_BIN_EXE_any_device")).env_remove("LD_LIBRARY_PATH").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("first value "), "{text}");
    if text.starts_with("CUDA device") {
        return println!(
            "WARNING: this machine has a driver; how the program starts without one was NOT tested"
        );
    }
    assert!(text.contains("no GPU: device error: "), "{text}");
    assert!(text.contains("CPU: "), "{text}");
    assert!(output.stderr.is_empty(), "nothing panicked: {}", String::from_utf8_lossy(&output.stderr));
}
