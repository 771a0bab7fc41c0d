//! The examples, run: bits against the file that every binding is compared with, and a training that learns.

use corrnoise::Key;

#[allow(dead_code)]
#[path = "../../examples/bindings.rs"]
mod bindings;
#[allow(dead_code)]
#[path = "../../examples/train.rs"]
mod train;

#[test]
fn candle_tensors_hold_the_bits_of_every_case() {
    let all = bindings::all().unwrap();
    assert_eq!(all.len(), 12, "four forms in three types");
    for [case, dtype, made, expected] in all {
        assert!(made == expected, "{case} {dtype}");
    }
}

#[test]
fn private_training_learns() {
    let [before, after] = train::train(Key::from_bytes([7; 32], "train")).unwrap();
    assert!(before > 0.69 && after < 0.2, "{before} before, {after} after");
}
