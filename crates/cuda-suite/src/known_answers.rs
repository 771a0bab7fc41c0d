//! The vectors of `crates/core/vectors/`, through the kernels.

use crate::values::DeviceValues;
use corrnoise::backend::{Add, Backend, Step, StepKernel};
use corrnoise::cuda::Cuda;
use corrnoise::cuda::cudarc::driver::CudaStream;
use corrnoise::vectors::{self, Vector};
use corrnoise::{Dtype, Element, Form, Plan, Row, RunKey, Shard, with_element};
use std::ops::Range;
use std::sync::Arc;

fn engine(stream: &Arc<CudaStream>, keys: &[RunKey], plan: &Plan, coords: Range<u64>) -> Cuda {
    let shard = Shard::whole(coords.end).unwrap().within(coords).unwrap();
    Cuda::new(plan, keys, &shard, stream).unwrap()
}

fn step<T: Element>(cuda: &mut Cuda, step: &Step<'_>, before: &[T]) -> Vec<T> {
    let stream = cuda.stream().clone();
    let mut device = DeviceValues::new(&stream, before).unwrap();
    cuda.step(step, &[device.gradient()]).unwrap();
    device.get().unwrap()
}

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

pub(crate) fn normals(stream: &Arc<CudaStream>) {
    for vector in vectors::read(vectors::NORMALS).unwrap() {
        let (first, expected) = (vector.decimal("coord").unwrap(), vector.words("bits").unwrap());
        // The row's own incarnation must have a key; all incarnations get the vector's.
        let incarnations = usize::from(vector.row().unwrap().incarnation()) + 1;
        let keys: Vec<_> = (0..incarnations).map(|_| RunKey::from_bytes(vector.key().unwrap())).collect();
        // A regenerated sum of one row with weight 1 gives the device's own normals, whatever the row's family.
        let form = Form::regenerate(&[1.0]).unwrap();
        let plan = Plan::new(1, form, 1.0).unwrap().with_rounds(vector.rounds().unwrap()).unwrap();
        let mut cuda = engine(stream, &keys, &plan, first..first + expected.len() as u64);
        let kernel = StepKernel::Regenerate { terms: &[(vector.row().unwrap(), 1.0)] };
        let lowered = Step { number: 0, add: Add::Plain(1.0), dither: Row::default(), kernel };
        let got = step(&mut cuda, &lowered, &vec![0.0_f32; expected.len()]);
        assert_eq!(bits(got), expected, "{}", vector.place);
    }
}

pub(crate) fn forms(stream: &Arc<CudaStream>) {
    for vector in vectors::read(vectors::FORMS).unwrap() {
        let (coord, expected) = (vector.decimal("coord").unwrap(), vector.words("bits").unwrap());
        let form: Form = serde_json::from_str(vector.text("form").unwrap()).unwrap();
        let (incarnations, keys) = vector.incarnations().unwrap();
        let plan = Plan::new(expected.len() as u64, form, 1.0)
            .unwrap()
            .with_rounds(vector.rounds().unwrap())
            .unwrap();
        let coords = coord.saturating_sub(40)..coord + 40;
        let mut cuda = engine(stream, &keys, &plan, coords.clone());
        let mut terms = Vec::new();
        for (t, expected) in expected.iter().enumerate() {
            let lowered = Step::lower(&plan, t as u64, &incarnations, &mut terms).unwrap();
            // The answers are those before the output grid.
            let lowered = Step { add: Add::Plain(plan.scale(t as u64)), ..lowered };
            let got = step(&mut cuda, &lowered, &vec![0.0_f32; (coords.end - coords.start) as usize]);
            let at = (coord - coords.start) as usize;
            assert_eq!(got[at].to_bits(), *expected, "{}, step {t}", vector.place);
        }
    }
}

fn add<T: Element>(stream: &Arc<CudaStream>, vector: &Vector) -> Vec<u32> {
    let before: Vec<T> = vector.words("before").unwrap().into_iter().map(T::from_bits).collect();
    let plan = Plan::new(1, Form::independent(), 1.0).unwrap().with_rounds(vector.rounds().unwrap()).unwrap();
    let first = vector.decimal("coord").unwrap();
    let keys = [RunKey::from_bytes(vector.key().unwrap())];
    let mut cuda = engine(stream, &keys, &plan, first..first + before.len() as u64);
    step(&mut cuda, &vector.step().unwrap(), &before).into_iter().map(T::to_bits).collect()
}

pub(crate) fn gradients(stream: &Arc<CudaStream>) {
    for vector in vectors::read(vectors::GRADIENTS).unwrap() {
        let dtype: Dtype = vector.text("type").unwrap().parse().unwrap();
        let got = with_element!(dtype, E => add::<E>(stream, &vector));
        assert_eq!(got, vector.words("after").unwrap(), "{}", vector.place);
    }
}
