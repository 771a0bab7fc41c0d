//! The two ways of rounding to bf16: by an instruction from compute capability 8.0 on, else in integers.

use corrnoise::{Form, Mechanism, Plan, Shard};
use corrnoise_cuda::{OnCuda, stream};
use corrnoise_cuda_suite::compare::{key, same_bits};
use corrnoise_cuda_suite::run;
use corrnoise_testkit::cases::every_form;
use cuda::control;
use half::bf16;

/// Device 0 has the instruction that rounds to bf16, device 6 does it in integers: both give the CPU's bits, infinities and NaN included.
#[test]
fn both_roundings_to_bf16_give_the_same_bits() {
    let capability = |device| stream(device).unwrap().context().compute_capability().unwrap();
    assert_eq!((capability(0), capability(6)), ((8, 0), (7, 5)));
    for (device, loads) in [(0, 2), (6, 1)] {
        let stream = stream(device).unwrap();
        for (name, form) in every_form(4) {
            let plan = Plan::new(4, form, 0.7313).unwrap().with_finest_grid().unwrap();
            let shard = Shard::whole(20_000).unwrap().within(4..9007).unwrap();
            let before = control::calls_on(device, "cuModuleLoadData");
            same_bits::<bf16>(&stream, &plan, &shard, true, &name);
            assert_eq!(control::calls_on(device, "cuModuleLoadData") - before, loads, "{name}");
        }
        let plan = Plan::new(4, Form::independent(), 0.7313).unwrap().with_finest_grid().unwrap();
        let mut noise = Mechanism::cuda(&plan, key(), Shard::whole(700).unwrap(), &stream).unwrap();
        let special = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(bf16::from_f32);
        let before: Vec<bf16> = special.into_iter().cycle().take(700).collect();
        let mut gradient = stream.clone_htod(&before).unwrap();
        noise.add_to(&mut gradient).unwrap();
        let same = |(a, b): (&bf16, &bf16)| a == b || (a.is_nan() && b.is_nan());
        assert!(stream.clone_dtoh(&gradient).unwrap().iter().zip(&before).all(same));
    }
}

/// The suite's devices have the instruction, unless there are seven cores for them: here every kernel that rounds in integers has its million values.
#[test]
fn a_million_values_of_every_kernel_that_rounds_in_integers() {
    // The other test counts what its devices load.
    const DEVICE: usize = 5;
    control::set_capability(DEVICE, 75);
    let names = ["a_million_values_of_every_kernel_bf16", "a_million_values_of_every_row_ahead_bf16"];
    let outcome = run(&[stream(DEVICE).unwrap()], &names.map(String::from));
    assert_eq!((outcome.passed, outcome.failed), (2, 0));
}
