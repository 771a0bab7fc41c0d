//! Noise that the host makes and the device adds: the same bits, at every step and after every interruption.

use crate::compare::{Onto, key, same_bits_at, same_step_of_segments};
use crate::replay::{LEN, fork, pointer};
use corrnoise::cuda::cudarc::driver::result::ctx;
use corrnoise::cuda::cudarc::driver::{CudaStream, sys};
use corrnoise::cuda::{Cuda, DeviceGradient, HostMade, HostMadeOptions, MadeOnHost, OnCuda};
use corrnoise::{
    CpuOptions, Dtype, Element, Error, Form, Layout, Mechanism, Place, Plan, Resume, Shard, with_element,
};
use corrnoise_testkit::cases::every_form;
use half::f16;
use std::sync::Arc;

const STEPS: u64 = 7;

/// Parts of 16 tiles, the smallest: a row of some ten thousands of coordinates has more of them than memory holds.
fn small(window: usize) -> HostMadeOptions {
    let cpu = CpuOptions { threads: 2, prepare_threads: 1, ..CpuOptions::default() };
    HostMadeOptions { cpu, chunk_bytes: 1, window }
}

/// Compares every bit of every form's noise, in a shard of five parts that begins and ends inside a tile.
pub(crate) fn every_form_of_one_segment<E: Element>(stream: &Arc<CudaStream>) {
    let shard = Shard::whole(1 << 20).unwrap().within(8_000..41_003).unwrap();
    for (i, (name, form)) in every_form(STEPS).into_iter().enumerate() {
        let plan = Plan::new(STEPS, form, 0.7313).unwrap().with_finest_grid().unwrap();
        let place = Place::HostMade(stream.clone().into(), small(1 + i % 3));
        same_bits_at::<E>(stream, &plan, &shard, &place, i % 2 == 0, &name);
    }
}

/// Makes the next step on one gradient per segment, and compares with the CPU engine.
fn same_step<E: Element>(cpu: &mut Mechanism, noise: &mut Mechanism<HostMade>, what: &str) {
    let stream = noise.backend().stream().clone();
    same_step_of_segments::<E>(cpu, &stream, |list| noise.run_step(list), what);
}

/// More tensors than a part has tiles, tensors of several parts, every number type, and windows of one part up to the whole row.
pub(crate) fn several_tensors_and_windows(stream: &Arc<CudaStream>) {
    let sizes = (0..40_u64).map(|i| if i % 13 == 5 { 20_001 + i } else { 1 + i * i * 7 % 1_201 });
    let layout = Layout::new(sizes.enumerate().map(|(i, size)| (format!("t{i}"), size))).unwrap();
    for (i, (name, form)) in every_form(STEPS).into_iter().enumerate() {
        let plan = Plan::new(STEPS, form, 0.75).unwrap().with_finest_grid().unwrap();
        let options =
            HostMadeOptions { chunk_bytes: [1, 40_000, 100_000][i % 3], ..small([1, 2, 3, 1_000][i % 4]) };
        let mut cpu = Mechanism::cpu(&plan, key(), layout.whole()).unwrap();
        let mut noise = Mechanism::host_made(&plan, key(), layout.whole(), stream, options).unwrap();
        for step in 0..STEPS {
            let dtype = Dtype::ALL[(i + step as usize) % 3];
            if step % 3 > 0 {
                noise.prepare().unwrap();
            }
            let what = format!("{name}, {dtype}, {options:?}, step {step}");
            with_element!(dtype, E => same_step::<E>(&mut cpu, &mut noise, &what));
        }
    }
}

/// Shards of one part, the smallest of one coordinate, with the default options.
pub(crate) fn small_shards(stream: &Arc<CudaStream>) {
    for (name, form) in every_form(3) {
        let plan = Plan::new(3, form, 0.75).unwrap().with_finest_grid().unwrap();
        let space = Shard::whole(1 << 37).unwrap();
        let ranges = [5..6, 0..512, (1 << 36) - 3..(1 << 36) + 600];
        let one = ranges.map(|range| space.within(range).unwrap());
        for shard in one.into_iter().chain([space.select(&[77..1_301, 1_400..1_401]).unwrap()]) {
            let mut cpu = Mechanism::cpu(&plan, key(), shard.clone()).unwrap();
            let options = HostMadeOptions::default();
            let mut noise = Mechanism::host_made(&plan, key(), shard, stream, options).unwrap();
            for step in 0..3 {
                noise.prepare().unwrap();
                let what = format!("{name}, {:?}, step {step}", cpu.shard().segments());
                same_step::<f32>(&mut cpu, &mut noise, &what);
            }
        }
    }
}

/// At every step the files of all engines are the same, prepared or not, and each engine goes on from another's.
pub(crate) fn checkpoints_of_every_engine(stream: &Arc<CudaStream>) {
    let folder = tempfile::tempdir().unwrap();
    let (from_cpu, from_host_made) = (folder.path().join("cpu"), folder.path().join("host-made"));
    let space = Shard::whole(30_000).unwrap();
    let options = small(2);
    for (name, form) in every_form(STEPS) {
        let plan = Plan::new(STEPS, form, 0.75).unwrap().with_finest_grid().unwrap();
        let mut cpu = Mechanism::cpu(&plan, key(), space.clone()).unwrap();
        let mut noise = Mechanism::host_made(&plan, key(), space.clone(), stream, options).unwrap();
        for stop in 0..=STEPS {
            cpu.save(&from_cpu).unwrap();
            let expected = std::fs::read(&from_cpu).unwrap();
            for prepared in [false, true] {
                if prepared && stop % 2 == 0 {
                    noise.prepare().unwrap();
                }
                noise.save(&from_host_made).unwrap();
                let same = std::fs::read(&from_host_made).unwrap() == expected;
                assert!(same, "{name}: the files differ at step {stop}, prepared: {prepared}");
            }
            if stop < STEPS {
                let part = || space.within(77..20_501).unwrap();
                let exact = Resume::Exact;
                let from = &[&from_host_made];
                let mut on_cuda =
                    Mechanism::<Cuda>::resume_cuda(&plan, key(), part(), from, exact, stream).unwrap();
                let mut on_cpu =
                    Mechanism::resume_cpu(&plan, key(), part(), from, exact, options.cpu).unwrap();
                let from = &[&from_cpu];
                let mut on_host =
                    Mechanism::resume_host_made(&plan, key(), part(), from, exact, stream, options).unwrap();
                let what = format!("{name}, stopped at {stop}");
                crate::compare::same_step::<f32>(&mut on_cpu, &mut on_cuda, Onto::Zero, &what);
                let mut on_cpu =
                    Mechanism::resume_cpu(&plan, key(), part(), from, exact, options.cpu).unwrap();
                for step in stop..STEPS.min(stop + 2) {
                    same_step::<f32>(&mut on_cpu, &mut on_host, &format!("{what}, step {step}"));
                    on_host.prepare().unwrap();
                }
                same_step::<f32>(&mut cpu, &mut noise, &format!("{name}, step {stop}"));
            }
        }
    }
}

/// While the stream is captured every call is refused in one line and changes nothing, and a mechanism that is dropped adds nothing to the graph.
pub(crate) fn a_capture_is_refused(stream: &Arc<CudaStream>) {
    let own = fork(stream);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise");
    let plan =
        Plan::new(6, Form::blt(&[0.3, 0.1], &[0.9, 0.5]).unwrap(), 0.75).unwrap().with_finest_grid().unwrap();
    let shard = || Shard::whole(LEN as u64).unwrap();
    let new = || Mechanism::host_made(&plan, key(), shard(), &own, small(2));
    let mut cpu = Mechanism::cpu(&plan, key(), shard()).unwrap();
    let (mut noise, dropped) = (new().unwrap(), new().unwrap());
    same_step::<f32>(&mut cpu, &mut noise, "before");
    let mut gradient = own.alloc_zeros::<f32>(LEN).unwrap();
    let address = pointer(&mut gradient, &own);
    // SAFETY: the gradient outlives the test's work.
    let raw = || [unsafe { DeviceGradient::from_raw(address, LEN as u64, Dtype::F32) }];
    let refused = |result: corrnoise::Result<()>, what: &str| {
        let message = result.expect_err(what).to_string();
        let said = "noise that the host makes cannot be part of a graph";
        assert!(message.contains(said) && !message.contains('\n'), "{what}: {message}");
    };
    own.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    refused(noise.run_step(&raw()), "run_step");
    refused(noise.add_to(&mut gradient), "add_to");
    refused(noise.prepare(), "prepare");
    refused(noise.save(&file), "save");
    refused(noise.backend().first_overflow().map(drop), "first_overflow");
    refused(new().map(drop), "new");
    drop(dropped);
    if let Some(graph) = own.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap() {
        graph.launch().unwrap();
    }
    assert!(own.clone_dtoh(&gradient).unwrap().iter().all(|g| *g == 0.0), "nothing was captured");
    same_step::<f32>(&mut cpu, &mut noise, "after");
}

pub(crate) fn an_overflow_is_found_and_bad_gradients_are_refused(stream: &Arc<CudaStream>) {
    let plan =
        Plan::new(4, Form::regenerate(&[1.0, -0.5]).unwrap(), 1.0).unwrap().with_finest_grid().unwrap();
    let len = 17_000_usize;
    let shard = || Shard::whole(len as u64).unwrap();
    let mut noise = Mechanism::host_made(&plan, key(), shard(), stream, small(1)).unwrap();
    let mut gradient = vec![f16::ONE; len];
    noise.add_to(&mut stream.clone_htod(&gradient).unwrap()).unwrap();
    assert_eq!(noise.backend().first_overflow().unwrap(), None);
    noise.prepare().unwrap();
    let mut short = stream.alloc_zeros::<f32>(len - 1).unwrap();
    assert!(matches!(noise.add_to(&mut short), Err(Error::Length { .. })));
    // In the last part.
    gradient[16_999] = f16::INFINITY;
    for _ in 1..3 {
        noise.add_to(&mut stream.clone_htod(&gradient).unwrap()).unwrap();
    }
    assert_eq!(noise.backend().first_overflow().unwrap(), Some(1));
    let mut cpu = Mechanism::cpu(&plan, key(), shard()).unwrap();
    (0..3).for_each(|_| cpu.add_to(&mut vec![0.0_f32; len]).unwrap());
    same_step::<f32>(&mut cpu, &mut noise, "after the overflow");
    let past = noise.add_to(&mut stream.clone_htod(&gradient).unwrap());
    assert!(matches!(past, Err(Error::PastEnd { step: 4, num_steps: 4 })));
}

/// With no context current before a call, none is current after it.
pub(crate) fn every_call_leaves_the_callers_context(stream: &Arc<CudaStream>) {
    let before = ctx::get_current().unwrap();
    let plan = Plan::new(4, Form::blt(&[0.3], &[0.9]).unwrap(), 0.75).unwrap().with_finest_grid().unwrap();
    let shard = Shard::whole(20_000).unwrap();
    let mut gradient = stream.alloc_zeros::<f32>(20_000).unwrap();
    fn keeps<T>(what: &str, call: impl FnOnce() -> T) -> T {
        // SAFETY: null is no context.
        unsafe { ctx::set_current(std::ptr::null_mut()) }.unwrap();
        let value = call();
        assert_eq!(ctx::get_current().unwrap(), None, "{what}");
        value
    }
    let make = || Mechanism::host_made(&plan, key(), shard, stream, small(1)).unwrap();
    let mut noise = keeps("new", make);
    keeps("prepare", || noise.prepare().unwrap());
    keeps("add_to", || noise.add_to(&mut gradient).unwrap());
    keeps("state", || noise.state().unwrap());
    keeps("first_overflow", || noise.backend().first_overflow().unwrap());
    keeps("drop", || drop(noise));
    // SAFETY: what was current before, and is retained by its owner.
    unsafe { ctx::set_current(before.unwrap_or(std::ptr::null_mut())) }.unwrap();
}
