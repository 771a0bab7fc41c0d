//! Tests that only a stand-in can do: which mistakes in a kernel are noticed, how many bytes it moves, that a step never waits.

use corrnoise::{Element, Form, Mechanism, Plan, Shard};
use corrnoise_cuda::{DeviceGradient, OnCuda, stream};
use corrnoise_cuda_suite::compare::{Onto, key, same_bits};
use corrnoise_cuda_suite::values::DeviceValues;
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use cuda::control;
use half::{bf16, f16};

/// The PTX that a BLT with four buffers runs, as committed.
const BLT4: &str = include_str!("../../cuda/ptx/blt4.ptx");

/// Runs a BLT with four buffers on `device` with mutated PTX: true if a bit differs from the CPU's, or a fault is reported.
fn is_noticed(device: usize) -> bool {
    // From 8.0 on there would be a second module, in which the mutated text does not occur.
    control::set_capability(device, 75);
    let stream = stream(device).expect("a device");
    let (_, form) = every_form(8).swap_remove(4);
    // A scale of two bits would leave nothing to round in most products.
    let plan = Plan::new(8, form, 0.7313).unwrap().with_finest_grid().unwrap();
    // One gradient is aligned to four values, the other is not; each ends in the middle of a tile.
    [4..126_007, 5..126_008].into_iter().any(|range| {
        let shard = Shard::whole(200_000).unwrap().within(range).unwrap();
        [true, false].into_iter().any(|plain_first| {
            let run = || same_bits::<f32>(&stream, &plan, &shard, plain_first, "mutated");
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
        })
    })
}

/// The kernel for f32: the first of the module's three.
fn f32_kernel() -> &'static str {
    let start = BLT4.find(".entry noise_f32").expect("the kernel");
    &BLT4[start..start + BLT4[start..].find("\n}").expect("its end")]
}

/// The lines of the f32 kernel that contain a text.
fn lines(with: &str) -> Vec<&'static str> {
    let found: Vec<_> = f32_kernel().lines().filter(|line| line.contains(with)).collect();
    assert!(!found.is_empty(), "the kernel has no {with:?}");
    found
}

#[test]
fn arithmetic_mutations_of_the_ptx_are_noticed() {
    const DEVICE: usize = 4;
    control::mutate_clear(DEVICE);
    assert!(!is_noticed(DEVICE), "the committed PTX is right");
    // The rotations' distances are kept in registers.
    let rotation = *lines("mov.u32").iter().find(|line| line.ends_with(", 12;")).expect("a rotation by 12");
    let store = *lines("st.global.v4.f32").last().expect("a store");
    let swapped = {
        let (head, list) = store.split_once('{').expect("a list");
        let mut names: Vec<&str> = list.trim_end_matches("};").split(", ").collect();
        names.swap(0, 1);
        format!("{head}{{{}}};", names.join(", "))
    };
    let mut mutations = vec![
        ("a wrong rotation".to_owned(), rotation.to_owned(), rotation.replace(", 12;", ", 13;")),
        ("a swapped lane".to_owned(), store.to_owned(), swapped),
    ];
    for coefficient in ["0fBF2AD1EA", "0fC0351EC0", "0fBF255DDF", "0f3E81E0DC"] {
        let last = u32::from_str_radix(&coefficient[2..], 16).unwrap() ^ 1;
        mutations.push((format!("{coefficient} by 1 ulp"), coefficient.to_owned(), format!("0f{last:08X}")));
    }
    for (mistake, from, to) in mutations {
        control::mutate(DEVICE, &from, &to, 0);
        assert!(is_noticed(DEVICE), "{mistake} was not noticed");
        control::mutate_clear(DEVICE);
    }
}

/// Replaces every fma of the kernel, one at a time, by a multiply and an add.
#[test]
fn operations_that_are_not_fused_are_noticed() {
    const DEVICE: usize = 0;
    // The first Horner steps of sine and cosine change the last bit of a normal once in millions: the 10⁷ values of
    // `tests/twin.rs` reach them.
    // The noise in units plus 1.5·2²³ is an integer beside it: which one, where two are equally near, does not matter, since what is left
    // is kept exactly.
    let constants = ["0fBB96DEC9;", "0f3A6B4255;", "0f4B400000;"];
    let result = |line: &'static str| line.split(['\t', ',']).nth(2).expect("a register");
    let holds = |constant: &str| {
        lines("mov.f32").into_iter().filter(|line| line.ends_with(constant)).map(result).collect::<Vec<_>>()
    };
    let uses = |line: &str, register: &&str| {
        [',', ';'].into_iter().any(|end| line.contains(&format!("{register}{end}")))
    };
    let mut not_shown: Vec<&str> = constants.into_iter().flat_map(holds).collect();
    // The dither is a word times the digits of the step's scale, with the power of two 2⁻³⁵. Rounded before it is added, it moves the noise by 2⁻²² units of the grid once
    // in thousands of values, which shows in a release once in some 10¹⁰; `crates/core/src/grid/tests.rs` compares the noise itself.
    let powers = lines("or.b32").into_iter().filter(|line| line.ends_with(", 771751936;"));
    let digits: Vec<&str> = powers.map(result).collect();
    assert!(!digits.is_empty(), "no scale of a dither");
    let of_words =
        lines("mov.b32").into_iter().filter(|line| digits.iter().any(|register| uses(line, register)));
    not_shown.extend(of_words.map(result));
    // A square root begins with any approximation, and its refinements may be off as far: 1/2 − h·s, and what is scaled by it.
    let halves = holds("0f3F000000;");
    let residuals = lines("fma.rn.f32").into_iter().filter(|fma| halves.iter().any(|half| uses(fma, half)));
    let residuals: Vec<&str> = residuals.map(result).collect();
    assert_eq!(residuals.len(), 8, "one per pair of words");
    // The last correction is so small that its own rounding does not matter; it is the fma of two refined numbers.
    let refined: Vec<&str> = lines("fma.rn.f32")
        .into_iter()
        .filter(|fma| residuals.iter().any(|e| uses(fma, e)))
        .map(result)
        .filter(|register| !residuals.contains(register))
        .collect();
    let is_last = |fma: &&str| refined.iter().filter(|register| uses(fma, register)).count() == 2;
    let last: Vec<&str> = lines("fma.rn.f32").into_iter().filter(is_last).collect();
    assert_eq!(last.len(), 8, "one per pair of words");
    not_shown.extend(halves.into_iter().chain(residuals));
    let (mut total, mut missed) = (0, Vec::new());
    for fma in lines("fma.rn.f32")
        .into_iter()
        .filter(|fma| !last.contains(fma) && !not_shown.iter().any(|constant| uses(fma, constant)))
    {
        let operands = fma.split_once("fma.rn.f32").unwrap().1.trim().trim_end_matches(';');
        let names: Vec<&str> = operands.split(", ").collect();
        let [d, a, b, c] = names[..] else { panic!("{fma}") };
        let split = format!("\tmul.rn.f32 \t{d}, {a}, {b};\n\tadd.rn.f32 \t{d}, {d}, {c};");
        control::mutate(DEVICE, fma, &split, 0);
        total += 1;
        if !is_noticed(DEVICE) {
            missed.push(fma.trim());
        }
        control::mutate_clear(DEVICE);
    }
    // One pair of words in eight goes through each fma: where e·ln 2 is nearly exact, the difference can stay hidden.
    println!("{} of {total} not noticed: {missed:?}", missed.len());
    assert!(
        total > 250 && 30 * missed.len() < total,
        "{} of {total} were not noticed: {missed:?}",
        missed.len()
    );
}

/// Mutates all comparisons with the length at once: a mistake in one shows only where the gradient ends there.
fn mutate_bounds(device: usize, change: impl Fn(&str) -> String) {
    let bounds = lines("setp.ge.s64");
    assert_eq!(
        bounds.len(),
        33,
        "one for all of a thread, and two per coordinate, for its load and its store"
    );
    for line in bounds {
        control::mutate(device, line, &change(line), 0);
    }
}

#[test]
fn a_length_that_is_off_by_one_is_noticed() {
    mutate_bounds(5, |line| line.replace("setp.ge", "setp.gt"));
    assert!(is_noticed(5));
}

#[test]
fn a_missing_bound_is_noticed() {
    mutate_bounds(6, |line| {
        let (head, _) = line.rsplit_once(", ").expect("operands");
        format!("{head}, 9223372036854775807;")
    });
    assert!(is_noticed(6));
}

/// Bytes per parameter of one step on whole tiles: those of 16-byte accesses, and those of a gradient's 8-byte accesses.
fn bytes_per_parameter<E: Element>(device: usize, form: Form) -> (f64, u64) {
    const LEN: u64 = 512 * 64;
    let stream = stream(device).unwrap();
    let plan = Plan::new(64, form, 0.75).unwrap().with_finest_grid().unwrap();
    let mut noise = Mechanism::cuda(&plan, key(), Shard::whole(LEN).unwrap(), &stream).unwrap();
    let mut gradient = DeviceValues::new(&stream, &Onto::Values.gradient::<E>(LEN)).unwrap();
    // Measured once every slot of the state is in use and the list of segments is on the device.
    for _ in 0..40 {
        noise.run_step(&[gradient.gradient()]).unwrap();
    }
    control::reset_traffic(device);
    noise.run_step(&[gradient.gradient()]).unwrap();
    let traffic = control::traffic(device);
    let wide = 16 * (traffic.loads_of(16) + traffic.stores_of(16));
    (wide as f64 / LEN as f64, 8 * traffic.stores_of(8) / LEN)
}

#[test]
fn kernels_move_the_least_bytes() {
    let device = 3;
    // With d buffers, a step moves 8 + 8·d bytes.
    for (buffers, (name, form)) in every_form(64).into_iter().take(9).enumerate() {
        let expected = (8 + 8 * buffers) as f64;
        assert_eq!(bytes_per_parameter::<f32>(device, form.clone()), (expected, 0), "{name}");
        // A 16-bit gradient is accessed 8 bytes at a time, 2 bytes per value each way; the state is as before.
        assert_eq!(bytes_per_parameter::<bf16>(device, form.clone()), (expected - 8.0, 2), "{name}");
        assert_eq!(bytes_per_parameter::<f16>(device, form), (expected - 8.0, 2), "{name}");
    }
    // With b bands, a step moves 8 + 4·b bytes.
    for bands in [2, 5, 16] {
        let form = Form::banded_toeplitz(&square_root_coefs(bands)).unwrap();
        assert_eq!(bytes_per_parameter::<f32>(device, form), ((8 + 4 * bands) as f64, 0), "{bands} bands");
    }
}

/// Terms are 48 bytes, one per thread and row; apart from them, a regenerated sum touches only the gradient.
#[test]
fn regenerated_noise_touches_the_gradient_only() {
    for terms in [1, 4, 30] {
        let form = Form::regenerate(&inverse_square_root_coefs(terms)).unwrap();
        let (wide, narrow) = bytes_per_parameter::<f32>(2, form);
        assert!(narrow == 0 && (wide - 8.0).abs() <= 3.0 * terms as f64, "{terms} terms: {wide} bytes");
    }
}

/// A step enqueues kernels, and neither waits nor copies nor allocates.
#[test]
fn a_step_waits_for_nothing() {
    const WAITING: [&str; 12] = [
        "cuStreamSynchronize",
        "cuCtxSynchronize",
        "cuEventSynchronize",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuMemsetD8Async",
        "cuMemAllocAsync",
        "cuMemAlloc_v2",
        "cuMemFreeAsync",
        "cuMemFree_v2",
        "cuModuleLoadData",
    ];
    let device = 1;
    let stream = stream(device).unwrap();
    let mut steps = 0;
    for (name, form) in every_form(4) {
        let plan = Plan::new(4, form, 0.75).unwrap().with_finest_grid().unwrap();
        let mut noise = Mechanism::cuda(&plan, key(), Shard::whole(700).unwrap(), &stream).unwrap();
        let mut gradient = stream.alloc_zeros::<f32>(700).unwrap();
        let count = || WAITING.map(|function| control::calls_on(device, function));
        let (before, launches) = (count(), control::calls_on(device, "cuLaunchKernel"));
        for _ in 0..4 {
            noise.run_step(&[DeviceGradient::from_slice(&mut gradient, &stream)]).unwrap();
            steps += 1;
        }
        assert_eq!(count(), before, "{name}");
        assert!(control::calls_on(device, "cuLaunchKernel") >= launches + 4, "the counts see the launches");
    }
    assert!(steps >= 76);
}

#[test]
fn missing_and_old_devices_are_errors() {
    let message = |ordinal| stream(ordinal).unwrap_err().to_string();
    assert!(message(7).contains("too old: compute capability 6.1, expected 7.0"), "{}", message(7));
    assert!(message(8).contains("CUDA device is 8: expected less than 8"), "{}", message(8));
}
