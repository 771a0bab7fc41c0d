//! A refusal names the variable, and changes neither gradients nor the step.

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use corrnoise::{AnyMechanism, Error, Form, Key, Layout, Place, Plan, Sampler, Sampling, Shard};
use corrnoise_candle::{CorrelatedNoise, add_to};

fn plan() -> Plan {
    Plan::new(2, Form::banded_toeplitz(&[1.0, 0.5]).unwrap(), 0.75).unwrap()
}

fn values(shape: (usize, usize), dtype: DType) -> Tensor {
    let len = (shape.0 * shape.1) as i64;
    Tensor::arange(0, len, &Device::Cpu).unwrap().reshape(shape).unwrap().to_dtype(dtype).unwrap()
}

fn contents(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The error of a step on variables `a` of 2 × 3 and `b` of 4 × 2 with these gradients.
fn refused(gradients: [Option<&Tensor>; 2]) -> String {
    let var = |shape: (usize, usize)| Var::zeros(shape, DType::F32, &Device::Cpu).unwrap();
    let vars = [("a", var((2, 3))), ("b", var((4, 2)))];
    let mut noise = CorrelatedNoise::new(vars.clone(), &plan(), Key::from_os().unwrap()).unwrap();
    let store = |gradients: [Option<&Tensor>; 2]| {
        let mut store = GradStore::default();
        for ((_, var), gradient) in vars.iter().zip(gradients) {
            gradient.map(|gradient| store.insert(var, gradient.clone()));
        }
        store
    };
    let before = gradients.map(|gradient| gradient.map(contents));
    let error = noise.add_noise(&store(gradients)).unwrap_err().to_string();
    assert_eq!(gradients.map(|gradient| gradient.map(contents)), before, "{error}");
    assert_eq!(noise.next_step(), 0, "{error}");
    let (a, b) = (values((2, 3), DType::F32), values((4, 2), DType::F32));
    noise.add_noise(&store([Some(&a), Some(&b)])).unwrap();
    assert_eq!(noise.next_step(), 1, "{error}");
    error
}

#[test]
fn bad_gradients_are_named_and_nothing_changes() {
    let (a, b) = (values((2, 3), DType::F32), values((4, 2), DType::F32));
    let error = refused([Some(&a), None]);
    assert_eq!(error, "gradient of \"b\" is missing: expected a tensor in the GradStore");
    let error = refused([Some(&a), Some(&values((3, 2), DType::F32))]);
    assert_eq!(error, "shape of gradient of \"b\" is [3, 2]: expected [4, 2]");
    let error = refused([Some(&a), Some(&values((2, 4), DType::F32).t().unwrap())]);
    assert!(error.starts_with("memory of gradient of \"b\" is strided by [1, 4]"), "{error}");
    let wide = Tensor::ones((1, 2), DType::F32, &Device::Cpu).unwrap().broadcast_as((4, 2)).unwrap();
    let error = refused([Some(&a), Some(&wide)]);
    assert!(error.starts_with("memory of gradient of \"b\" is strided by [0, 1]"), "{error}");
    let error = refused([Some(&a), Some(&values((4, 2), DType::BF16))]);
    assert_eq!(error, "type of gradient of \"b\" is bf16: expected f32, that of gradient of \"a\"");
    let error = refused([Some(&values((2, 3), DType::F64)), Some(&b)]);
    assert_eq!(error, "type of gradient of \"a\" is f64: expected f32, bf16 or f16");
}

#[test]
fn gradients_in_one_storage_are_refused() {
    let rows = values((7, 2), DType::F32);
    let a = rows.narrow(0, 0, 3).unwrap().reshape((2, 3)).unwrap();
    let b = rows.narrow(0, 3, 4).unwrap();
    let error = refused([Some(&a), Some(&b)]);
    assert!(error.contains("gradient of \"a\"") && error.contains("gradient of \"b\""), "{error}");
    assert!(error.contains("a storage of its own"), "{error}");
}

#[test]
fn lists_must_fit_the_shard() {
    let (a, b) = (values((2, 3), DType::F32), values((4, 2), DType::F32));
    let shard = Layout::new([("a", 6), ("b", 7)]).unwrap().whole();
    let mut noise = AnyMechanism::new(&plan(), Key::from_os().unwrap(), shard, &Place::default()).unwrap();
    let before = [contents(&a), contents(&b)];
    for (list, part) in [
        (&[&a, &b][..], "gradient 1 has length 8: expected 7"),
        (&[&a], "list of gradients has length 1: expected 2"),
        (&[], "list of gradients has length 0: expected 2"),
    ] {
        let error = add_to(&mut noise, list).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(([contents(&a), contents(&b)], noise.next_step()), (before, 0));
}

#[test]
fn bad_variables_are_refused() {
    let var = Var::zeros(3, DType::F32, &Device::Cpu).unwrap();
    let twice = [("w", var.clone()), ("w", var.clone())];
    let new = |vars: Vec<(&str, Var)>| {
        CorrelatedNoise::new(vars, &plan(), Key::from_os().unwrap()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(new(twice.to_vec()).contains("\"w\""));
    assert!(new(Vec::new()).contains("list of tensors"));
    let part = CorrelatedNoise::with([("w", var)], |_, _| {
        let shard = Shard::whole(3).unwrap().within(0..2).unwrap();
        AnyMechanism::new(&plan(), Key::from_os().unwrap(), shard, &Place::default())
    });
    assert!(matches!(part.map(|_| ()), Err(Error::Parameter { .. })));
}

#[test]
fn a_step_without_its_batch_is_refused() {
    let sampling = Sampling::Cyclic { dataset_size: 60, num_batches: 4 };
    let plan = plan().with_sampling(sampling).unwrap();
    let (var, key) = (Var::zeros(3, DType::F32, &Device::Cpu).unwrap(), Key::from_os().unwrap());
    let sampler = Sampler::new(&plan, &key).unwrap();
    let mut noise = CorrelatedNoise::new([("w", var.clone())], &plan, key).unwrap();
    let mut store = GradStore::default();
    store.insert(&var, Tensor::ones(3, DType::F32, &Device::Cpu).unwrap());
    assert!(matches!(noise.add_noise(&store), Err(Error::NoBatch { step: 0 })));
    assert_eq!(contents(store.get(&var).unwrap()), [1.0; 3]);
    noise.for_batch(&sampler.batch(0).unwrap()).unwrap().add_noise(&store).unwrap();
    assert!(matches!(noise.add_noise(&store), Err(Error::NoBatch { step: 1 })));
    noise.unchecked_batch().unwrap().add_noise(&store).unwrap();
    assert_eq!(noise.next_step(), 2);
}
