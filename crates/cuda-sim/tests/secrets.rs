//! Keys, rows and all from which they follow are cleared before their memory is freed.

use corrnoise::backend::{Add, Backend, Step, StepKernel};
use corrnoise::chacha::{ChaCha, first_columns};
use corrnoise::grid::DitherBlock;
use corrnoise::{Cpu, CpuOptions, Dtype, Form, Gradients, Incarnations, Key, Mechanism, Plan, Row, Shard};
use corrnoise_cuda::{Cuda, CudaOptions, DeviceGradient, HostMade, HostMadeOptions, MadeOnHost, OnCuda};
use corrnoise_cuda_suite::compare::ways;
use corrnoise_testkit::cases::{inverse_square_root_coefs, square_root_coefs};
use cuda::control;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaSlice, DevicePtrMut};

/// Keys are cleared by fills: one when a mechanism is dropped, or, if its stream is being captured then, with the next mechanism.
#[test]
fn keys_are_cleared_when_a_mechanism_ends() {
    let device = 6;
    let stream = corrnoise_cuda::stream(device).unwrap().context().new_stream().unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let make = || {
        let key = Key::from_bytes([3; 32], "secret");
        Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream).unwrap()
    };
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    let count = |run: &mut dyn FnMut()| {
        let before = fills();
        run();
        fills() - before
    };
    let mut noise = None;
    let to_make = count(&mut || noise = Some(make()));
    assert_eq!(count(&mut || drop(noise.take())), 2, "keys and list");
    noise = Some(make());
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    assert_eq!(count(&mut || drop(noise.take())), 0, "not within the capture");
    drop(stream.end_capture(CUgraphInstantiate_flags(0)).unwrap());
    assert_eq!(count(&mut || noise = Some(make())), to_make + 2, "cleared with the next one");
    assert_eq!(count(&mut || drop(noise.take())), 2);
}

/// The records of a schedule hold the words of each step's dither: they are cleared when the replay ends, or with its mechanism.
#[test]
fn records_are_cleared_when_a_replay_ends() {
    let device = 4;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let key = Key::from_bytes([3; 32], "records");
    let mut noise = Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream).unwrap();
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    noise.begin_replay(2).unwrap();
    let before = fills();
    assert_eq!(noise.end_replay().unwrap(), 0);
    assert_eq!(fills() - before, 2, "records and lists");
    noise.begin_replay(2).unwrap();
    let before = fills();
    drop(noise);
    assert_eq!(
        fills() - before,
        5,
        "keys and list, the counter that says \"ended\", records and their lists"
    );
}

/// A schedule that arrives in part is cleared before its memory is freed.
#[test]
fn records_that_do_not_all_arrive_are_cleared() {
    let device = 3;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    let mut spoilt = Vec::new();
    for nth in 0.. {
        let key = Key::from_bytes([3; 32], "in part");
        let mut noise = Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream).unwrap();
        let before = fills();
        control::spoil(Some(control::Spoil::Fail(nth)));
        let begun = noise.begin_replay(2);
        let (_, name) = control::spoilt();
        control::spoil(None);
        let Some(name) = name else { break };
        if begun.is_err() && ["cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"].contains(&name.as_str()) {
            // Three fills make the memory: that of the counter, of the records and of their lists.
            assert_eq!(fills() - before, 3 + 2, "call {nth}, {name}");
            spoilt.push(name);
        }
    }
    assert_eq!(spoilt, ["cuMemcpyHtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"]);
}

/// Keys are sent when all memory is there: what was allocated before is freed, and not cleared.
#[test]
fn a_mechanism_that_does_not_fit_sends_no_key() {
    let device = 5;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap();
    let copies = || control::calls_on(device, "cuMemcpyHtoDAsync_v2");
    let before = copies();
    let shard = Shard::whole(3 << 30).unwrap();
    let refused = Mechanism::cuda(&plan, Key::from_os().unwrap(), shard, &stream);
    assert!(matches!(refused, Err(corrnoise::Error::OutOfMemory { .. })));
    assert_eq!(copies(), before);
}

/// Keys that arrive in part are cleared before their memory is freed.
#[test]
fn keys_that_do_not_all_arrive_are_cleared() {
    let device = 2;
    let stream = corrnoise_cuda::stream(device).unwrap();
    let plan = Plan::new(4, Form::independent(), 0.75).unwrap();
    let make = || {
        let key = Key::from_bytes([3; 32], "in part");
        Mechanism::cuda(&plan, key, Shard::whole(700).unwrap(), &stream)
    };
    let fills = || control::calls_on(device, "cuMemsetD8Async");
    let before = fills();
    let made = make().unwrap();
    let to_make = fills() - before;
    drop(made);
    let mut copies = Vec::new();
    for nth in 0.. {
        let before = fills();
        control::spoil(Some(control::Spoil::Fail(nth)));
        let outcome = make();
        let (_, name) = control::spoilt();
        control::spoil(None);
        let Some(name) = name else { break };
        if outcome.is_err() && name == "cuMemcpyHtoDAsync_v2" {
            copies.push(fills() - before);
        }
        drop(outcome);
        let _ = stream.context().check_err();
    }
    // The last copy is that of the keys: they and the list are cleared.
    assert_eq!(copies.last(), Some(&(to_make + 2)), "{copies:?}");
}

/// What may not be in memory that is freed once `from` steps are made: the key, and of all later steps their rows, the words of their dither
/// and the columns of their rows.
fn secrets(run: u8, plan: &Plan, shard: &Shard, from: u64) -> Vec<u8> {
    let keys = [key(run).run_key(plan.fingerprint())];
    let mut list = keys[0].bytes().to_vec();
    let words: [u32; 8] = std::array::from_fn(|i| u32::from_le_bytes(keys[0].bytes().as_chunks::<4>().0[i]));
    let cipher = ChaCha::new(keys[0].bytes(), plan.rounds());
    let mut cpu = Cpu::new(plan, &keys, shard, CpuOptions::default()).unwrap();
    let mut terms = Vec::new();
    for number in 0..plan.num_steps() {
        let step = Step::lower(plan, number, &Incarnations::first(), &mut terms).unwrap();
        let dither = DitherBlock::new(&cipher, step.dither).key(number).0;
        let rows: Vec<Row> = match &step.kernel {
            StepKernel::Blt { row, .. } | StepKernel::Ring { row, .. } => vec![*row],
            StepKernel::Regenerate { terms } => terms.iter().map(|(row, _)| *row).collect(),
        };
        let columns = rows.iter().flat_map(|row| first_columns(&words, row.stream()));
        let mut row = vec![0.0_f32; shard.num_coords() as usize];
        let columns: Vec<u32> = columns.collect();
        cpu.step(&Step { add: Add::Plain(1.0), ..step }, Gradients::new(&mut [&mut row[..]])).unwrap();
        if number >= from {
            list.extend(dither.into_iter().chain(columns).flat_map(u32::to_le_bytes));
            list.extend(row.into_iter().flat_map(f32::to_le_bytes));
        }
    }
    list
}

/// Runs have keys of their own: what one has released is no secret of its own, but would be one of another.
fn key(run: u8) -> Key {
    Key::from_bytes([run; 32], "secrets")
}

/// Runs a mechanism to one of its ends.
fn end<B: Backend>(
    mut noise: Mechanism<B>,
    end: usize,
    mut step: impl FnMut(&mut Mechanism<B>),
    replay: impl FnOnce(&mut Mechanism<B>),
    mut capture: impl FnMut(bool),
) {
    if end > 0 {
        (0..2 * end.min(3)).for_each(|_| step(&mut noise));
    }
    match end {
        2 => noise.prepare().unwrap(),
        3 => drop(noise.state().unwrap()),
        4 => replay(&mut noise),
        5 => {
            noise.prepare().unwrap();
            capture(true);
            drop(noise);
            return capture(false);
        }
        _ => (),
    }
    drop(noise);
}

/// No memory of the device and no pinned memory is freed with what nobody has released: keys, rows and words from which they follow.
#[test]
fn no_memory_is_freed_with_a_secret() {
    const DEVICE: usize = 1;
    const LEN: usize = 12 * 512;
    let stream = corrnoise_cuda::stream(DEVICE).unwrap().context().new_stream().unwrap();
    let shard = Shard::whole(LEN as u64).unwrap();
    let capture = |begins: bool| match begins {
        true => stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap(),
        false => drop(stream.end_capture(CUgraphInstantiate_flags(0)).unwrap()),
    };
    // What the check is worth: memory with a row is noticed.
    let plan = Plan::new(16, Form::independent(), 0.75).unwrap();
    control::secrets(&secrets(0, &plan, &shard, 0));
    let bytes = secrets(0, &plan, &shard, 15);
    drop(stream.clone_htod(&bytes).unwrap());
    assert!(control::noticed(DEVICE).is_some_and(|text| text.contains("freed with a secret at +0")));
    let mut run = 0;
    let forms = [
        ("independent", Form::independent()),
        ("blt", Form::blt(&[0.3, 0.1], &[0.9, 0.5]).unwrap()),
        ("ring", Form::banded_toeplitz(&square_root_coefs(6)).unwrap()),
        ("sum", Form::regenerate(&inverse_square_root_coefs(5)).unwrap()),
    ];
    let mut gradient = stream.alloc_zeros::<f32>(LEN).unwrap();
    for (name, form) in forms {
        let plan = Plan::new(16, form, 0.75).unwrap();
        for options in ways(plan.form()) {
            for how in 0..6 {
                run += 1;
                let noise = Mechanism::cuda_with(&plan, key(run), shard.clone(), &stream, options).unwrap();
                control::secrets(&secrets(run, &plan, &shard, 2 * how.min(3) as u64 + u64::from(how == 4)));
                let address = raw(&mut gradient);
                let step = |noise: &mut Mechanism<Cuda>| noise.run_step(&[raw(&mut gradient)]).unwrap();
                let replay = |noise: &mut Mechanism<Cuda>| {
                    noise.begin_replay(4).unwrap();
                    noise.enqueue(&[address]).unwrap();
                };
                end(noise, how, step, replay, capture);
                // What ended within a capture is freed with the next mechanism.
                drop(Mechanism::cuda(&plan, key(run), shard.clone(), &stream).unwrap());
                assert_eq!(control::noticed(DEVICE), None, "{name}, {options:?}, end {how}");
            }
        }
        for how in [0, 1, 2, 3, 5] {
            run += 1;
            let cpu = CpuOptions { threads: 1, ..CpuOptions::default() };
            let options = HostMadeOptions { cpu, chunk_bytes: 1, window: 2 };
            let noise = Mechanism::host_made(&plan, key(run), shard.clone(), &stream, options).unwrap();
            // The host has its own rows, and what it has released is in no memory of the device either.
            control::secrets(&secrets(run, &plan, &shard, 0));
            let step = |noise: &mut Mechanism<HostMade>| noise.run_step(&[raw(&mut gradient)]).unwrap();
            end(noise, how, step, |_| (), capture);
            drop(Mechanism::host_made(&plan, key(run), shard.clone(), &stream, options).unwrap());
            assert_eq!(control::noticed(DEVICE), None, "{name}, made by the host, end {how}");
        }
    }
}

fn raw(gradient: &mut CudaSlice<f32>) -> DeviceGradient<'static> {
    let (stream, len) = (gradient.stream().clone(), gradient.len() as u64);
    let address = gradient.device_ptr_mut(&stream).0;
    // SAFETY: the test keeps its gradient until the end.
    unsafe { DeviceGradient::from_raw(address, len, Dtype::F32) }
}

/// A schedule that neither began nor ended, because all calls of the driver failed, is cleared by the next one.
#[test]
fn a_schedule_that_could_not_end_is_cleared() {
    const DEVICE: usize = 0;
    let stream = corrnoise_cuda::stream(DEVICE).unwrap();
    let plan = Plan::new(8, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap();
    let shard = Shard::whole(1_024).unwrap();
    control::secrets(&secrets(255, &plan, &shard, 0));
    // A replay whose first rows are made when it begins has calls left to fail once its schedule is on the device.
    let options = CudaOptions { rows_ahead: Some(4), ..CudaOptions::default() };
    for nth in 0.. {
        let mut noise = Mechanism::cuda_with(&plan, key(255), shard.clone(), &stream, options).unwrap();
        control::spoil(Some(control::Spoil::FailFrom(nth)));
        let begun = noise.begin_replay(4);
        let (_, hit) = control::spoilt();
        control::spoil(None);
        let _ = stream.context().check_err();
        if begun.is_err() {
            noise.begin_replay(4).unwrap();
        }
        assert_eq!(noise.end_replay().unwrap(), 0);
        drop(noise);
        assert_eq!(control::noticed(DEVICE), None, "call {nth}: {hit:?}");
        if hit.is_none() {
            assert!(nth > 5);
            break;
        }
    }
}
