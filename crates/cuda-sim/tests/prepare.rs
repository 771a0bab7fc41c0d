//! Rows that are prepared on a stream of their own, on a stand-in that delays that stream for as long as nothing waits for it.

use cuda::control;

/// Rows that are made late, as they may be on a device, change no bits; a step that did not wait for them would read others.
#[test]
fn the_suite_with_late_rows() {
    let device = 2;
    let stream = corrnoise_cuda::stream(device).unwrap();
    control::delay(device, true);
    let tests =
        ["interruptions_between_prepare_and_step", "several_tensors_with_rows_ahead", "a_captured_graph"];
    let outcome = corrnoise_cuda_suite::run(&[stream], &tests.map(String::from));
    assert_eq!((outcome.passed, outcome.failed), (3, 0));
}
