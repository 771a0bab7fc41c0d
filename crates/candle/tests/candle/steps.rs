//! Steps on candle's memory: the bits of the engine whatever the order of variables, in place, with any number of tensors, and after
//! a resume.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use corrnoise::{AnyMechanism, CpuOptions, Error, Form, Key, Layout, Mechanism, Place, Plan, Resume, Shard};
use corrnoise_candle::CorrelatedNoise;
use std::collections::HashMap;

fn plan() -> Plan {
    Plan::new(6, Form::banded_toeplitz(&[1.0, 0.5, 0.375]).unwrap(), 0.75).unwrap()
}

fn key() -> Key {
    Key::from_bytes([9; 32], "candle")
}

/// Names and sizes of variables; in sorted order, `layer.10` comes before `layer.9`.
const SIZES: [(&str, usize); 4] = [("layer.9", 600), ("layer.10", 5), ("out", 1), ("in", 1030)];

fn vars() -> HashMap<String, Var> {
    let var = |len: usize| Var::zeros(len, DType::F32, &Device::Cpu).unwrap();
    SIZES.iter().map(|(name, len)| (name.to_string(), var(*len))).collect()
}

fn value(i: usize) -> f32 {
    (i * 37 % 101) as f32 / 16.0 - 3.0
}

fn gradients(vars: &[(String, Var)]) -> GradStore {
    let mut store = GradStore::default();
    for (_, var) in vars {
        let values: Vec<f32> = (0..var.elem_count()).map(value).collect();
        store.insert(var, Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap());
    }
    store
}

/// All gradients of a step, one after another.
fn step(noise: &mut CorrelatedNoise) -> Vec<f32> {
    let vars = noise.vars().to_vec();
    let store = gradients(&vars);
    noise.add_noise(&store).unwrap();
    vars.iter().flat_map(|(_, var)| store.get(var).unwrap().to_vec1::<f32>().unwrap()).collect()
}

/// All gradients of a step, made by the engine alone.
fn engine_step(noise: &mut Mechanism) -> Vec<f32> {
    let lens = noise.shard().segments().iter().map(|segment| (segment.end - segment.start) as usize);
    let mut slices: Vec<Vec<f32>> = lens.map(|len| (0..len).map(value).collect()).collect();
    noise.add_to_all(&mut slices.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
    slices.concat()
}

fn engine() -> Mechanism {
    let sorted = [("in", 1030), ("layer.10", 5), ("layer.9", 600), ("out", 1)];
    Mechanism::cpu(&plan(), key(), Layout::new(sorted).unwrap().whole()).unwrap()
}

/// A mechanism as `add_to` takes it.
fn any(shard: Shard, options: CpuOptions) -> AnyMechanism {
    AnyMechanism::new(&plan(), key(), shard, &Place::Cpu(options)).unwrap()
}

#[test]
fn prepared_or_not_the_bits_are_the_same() {
    // More than 32 tiles, so that the row is not left to the step.
    let var = || Var::zeros(40_000, DType::F32, &Device::Cpu).unwrap();
    let start = || CorrelatedNoise::new([("weight", var())], &plan(), key()).unwrap();
    let (mut plain, mut ahead) = (start(), start());
    for _ in 0..6 {
        ahead.prepare().unwrap();
        assert_eq!(step(&mut plain), step(&mut ahead));
    }
    assert!(ahead.mechanism().state_bytes() > plain.mechanism().state_bytes(), "a row was made ahead");
}

#[test]
fn variables_are_sorted_by_name() {
    let (mut expected, mut noise) = (engine(), CorrelatedNoise::new(vars(), &plan(), key()).unwrap());
    let mut listed: Vec<(String, Var)> = vars().into_iter().collect();
    listed.sort_by(|a, b| b.0.cmp(&a.0));
    let mut reversed = CorrelatedNoise::new(listed, &plan(), key()).unwrap();
    let names: Vec<&str> = noise.vars().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["in", "layer.10", "layer.9", "out"]);
    for _ in 0..6 {
        let bits = engine_step(&mut expected);
        assert_eq!(step(&mut noise), bits);
        assert_eq!(step(&mut reversed), bits);
    }
    let store = gradients(noise.vars());
    assert!(matches!(noise.add_noise(&store), Err(Error::PastEnd { step: 6, num_steps: 6 })));
}

#[test]
fn a_saved_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("noise.safetensors");
    let (mut expected, mut noise) = (engine(), CorrelatedNoise::new(vars(), &plan(), key()).unwrap());
    for _ in 0..3 {
        assert_eq!(step(&mut noise), engine_step(&mut expected));
    }
    noise.save(&file).unwrap();
    let mut exact = CorrelatedNoise::resume(vars(), &plan(), key(), &[&file], Resume::Exact).unwrap();
    let mut new = CorrelatedNoise::resume(vars(), &plan(), key(), &[&file], Resume::default()).unwrap();
    assert_eq!((exact.next_step(), exact.mechanism().plan().num_steps()), (3, 6));
    let bits = engine_step(&mut expected);
    assert_eq!(step(&mut exact), bits);
    assert_ne!(step(&mut new), bits);
    let other =
        CorrelatedNoise::resume([("w", vars()["in"].clone())], &plan(), key(), &[&file], Resume::Exact);
    assert!(matches!(other.map(|_| ()), Err(Error::Checkpoint { .. })));
}

#[test]
fn memory_is_changed_where_it_is() {
    let address = |tensor: &Tensor| {
        let (storage, layout) = tensor.storage_and_layout();
        let candle_core::Storage::Cpu(storage) = &*storage else { unreachable!("made on the CPU") };
        storage.as_slice::<f32>().unwrap()[layout.start_offset()..].as_ptr().addr()
    };
    // The gradient is a row of a larger tensor, whose other rows must stay as they are.
    let rows = Tensor::ones((3, 7), DType::F32, &Device::Cpu).unwrap();
    let row = rows.narrow(0, 1, 1).unwrap();
    let before = (address(&rows), address(&row));
    assert_eq!(before.1 - before.0, 28);
    let mut noise = any(Shard::whole(7).unwrap(), CpuOptions::default());
    corrnoise_candle::add_to(&mut noise, &[&row]).unwrap();
    assert_eq!((address(&rows), address(&row)), before);
    let mut expected = vec![1.0_f32; 7];
    Mechanism::cpu(&plan(), key(), Shard::whole(7).unwrap()).unwrap().add_to(&mut expected).unwrap();
    let rows = rows.to_vec2::<f32>().unwrap();
    assert_eq!([&rows[0], &rows[1], &rows[2]], [&vec![1.0; 7], &expected, &vec![1.0; 7]]);
}

#[test]
fn the_order_of_locks_is_not_that_of_gradients() {
    let tensor = |len: usize| Tensor::zeros(len, DType::F32, &Device::Cpu).unwrap();
    let (five, nine) = (tensor(5), tensor(9));
    // One of the two lists is not in the order of addresses.
    for list in [[&five, &nine], [&nine, &five]] {
        let lens = list.map(|tensor| tensor.elem_count() as u64);
        let layout = Layout::new([("one", lens[0]), ("two", lens[1])]).unwrap();
        let mut noise = any(layout.whole(), CpuOptions::default());
        corrnoise_candle::add_to(&mut noise, &list).unwrap();
    }
}

#[test]
fn thousands_of_tensors_fit_the_stack() {
    let count = 2000;
    let tensors: Vec<Tensor> =
        (0..count).map(|i| Tensor::zeros(1 + i % 3, DType::F32, &Device::Cpu).unwrap()).collect();
    let layout = Layout::new((0..count).map(|i| (i.to_string(), 1 + i as u64 % 3))).unwrap();
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let mut expected = Mechanism::cpu_with(&plan(), key(), layout.whole(), options).unwrap();
    let mut noise = any(layout.whole(), options);
    let mut slices: Vec<Vec<f32>> = (0..count).map(|i| vec![0.0; 1 + i % 3]).collect();
    expected.add_to_all(&mut slices.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
    // The thread has less stack than the recursion takes, which must therefore have a stack of its own.
    let small = std::thread::Builder::new().stack_size(256 << 10);
    let run =
        move || corrnoise_candle::add_to(&mut noise, &tensors.iter().collect::<Vec<_>>()).map(|()| tensors);
    let tensors = small.spawn(run).unwrap().join().unwrap().unwrap();
    let made: Vec<Vec<f32>> = tensors.iter().map(|tensor| tensor.to_vec1().unwrap()).collect();
    assert!(made == slices);
}
