//! The bits that other languages must make: `tests/data/bindings.json`, read by the tests of `crates/python`.
//!
//! Each case runs a plan on a model of two tensors, on gradients `((37·i + 11·k) mod 101 − 50) / 16` at coordinate `i` of tensor
//! `k`, new at every step; the file holds the last step's gradients. Of every way of choosing batches it holds a few, drawn with the same
//! key. `CORRNOISE_BLESS=1` writes it anew.

use corrnoise::{Dtype, Element, Form, Key, Layout, Mechanism, Plan, Sampler, Sampling, with_element};
use serde_json::{Value, json};

const SIZES: [(&str, u64); 2] = [("weight", 600), ("bias", 7)];

fn key() -> Key {
    Key::from_bytes(std::array::from_fn(|i| (i * 7 + 1) as u8), "bindings")
}

fn last_step<E: Element>(plan: &Plan) -> String {
    let mut noise = Mechanism::cpu(plan, key(), Layout::new(SIZES).unwrap().whole()).unwrap();
    let mut last = String::new();
    for _ in 0..plan.num_steps() {
        let value = |k: u64, i: u64| E::from_f32(((37 * i + 11 * k) % 101) as f32 / 16.0 - 50.0 / 16.0);
        let [mut weight, mut bias] =
            [0, 1].map(|k| (0..SIZES[k].1).map(|i| value(k as u64, i)).collect::<Vec<E>>());
        noise.add_to_all(&mut [&mut weight, &mut bias]).unwrap();
        // The lowest bytes of the bits are the value's own.
        let bytes = |value: &E| value.to_bits().to_le_bytes().into_iter().take(size_of::<E>());
        last = weight.iter().chain(&bias).flat_map(bytes).map(|byte| format!("{byte:02x}")).collect();
    }
    last
}

fn case(name: &str, form: Form) -> Value {
    let plan = Plan::new(5, form, 0.75).unwrap();
    let mut case = json!({ "name": name, "plan": plan.to_json() });
    for dtype in Dtype::ALL {
        case[dtype.python_name()] = with_element!(dtype, E => last_step::<E>(&plan)).into();
    }
    case
}

fn batches(name: &str, sampling: Sampling) -> Value {
    let plan = Plan::new(12, Form::banded_toeplitz(&[1.0, 0.5, 0.375]).unwrap(), 0.75).unwrap();
    let plan = plan.with_sampling(sampling).unwrap();
    let sampler = Sampler::new(&plan, &key()).unwrap();
    let batch = |step: u64| json!([step, sampler.batch(step).unwrap().indices()]);
    json!({
        "name": name,
        "plan": plan.to_json(),
        "expected_batch_size": sampler.expected_batch_size(),
        "batches": [batch(0), batch(5), batch(11)],
    })
}

fn all_batches() -> [Value; 7] {
    [
        batches("poisson", Sampling::Poisson { dataset_size: 200, sampling_prob: 0.1 }),
        batches(
            "block_poisson",
            Sampling::BlockPoisson { dataset_size: 300, num_blocks: 4, sampling_prob: 0.3 },
        ),
        batches("cyclic", Sampling::Cyclic { dataset_size: 61, num_batches: 7 }),
        batches("balls_in_bins", Sampling::BallsInBins { dataset_size: 61, num_bins: 7 }),
        batches("random_allocation", Sampling::RandomAllocation { dataset_size: 61, num_bins: 7 }),
        batches(
            "spaced_poisson",
            Sampling::SpacedPoisson { dataset_size: 200, min_sep: 4, sampling_prob: 0.2 },
        ),
        batches(
            "truncated_poisson",
            Sampling::TruncatedPoisson {
                dataset_size: 300,
                num_blocks: 4,
                sampling_prob: 0.3,
                max_batch_size: 20,
            },
        ),
    ]
}

/// A plan that claims more than its noise gives, which only computing the claim again shows. Written out, so that no number in it depends on a machine's logarithms.
fn false_claim() -> Plan {
    let certificate = json!({
        "version": 3,
        "planner": "0.1.0",
        "strategy": "identity",
        "workload": "prefix",
        "participation": "single",
        "adjacency": "zero-out",
        "unit": "example",
        "clip_norm": 1.0,
        "claim": {
            "epsilon": 0.5,
            "delta": 1e-6,
            "tail_delta": 0.0,
            "method": "gaussian",
            "gdp_mu": 1.3333333333333333,
            "noise_multiplier": 0.75,
            "sensitivity": 1.0,
            "sensitivity_kind": "exact",
            "assumptions": [],
        },
        "utility": { "max_error": 1.0, "rms_error": 1.0 },
    });
    let certificate = certificate.as_object().unwrap().clone();
    Plan::new(5, Form::independent(), 0.75).unwrap().with_certificate(certificate).unwrap()
}

#[test]
fn the_vectors_of_other_languages_are_fresh() {
    let cases = [
        case("independent", Form::independent()),
        case("blt", Form::blt(&[0.3, 0.11], &[0.5, 0.93]).unwrap()),
        case("banded", Form::banded_toeplitz(&[1.0, 0.5, 0.375, 0.3125]).unwrap()),
        case("regenerate", Form::regenerate(&[1.0, -0.5, -0.125]).unwrap()),
    ];
    let key: String = (0..32).map(|i| format!("{:02x}", i * 7 + 1)).collect();
    // A plan for runs of which only the agreement between processes matters.
    let training = Plan::new(20, Form::banded_toeplitz(&[1.0, 0.5, 0.375]).unwrap(), 0.1).unwrap().to_json();
    let file = json!({
        "training_plan": training,
        "key": key,
        "run_id": "bindings",
        "sizes": SIZES,
        "cases": cases,
        "batches": all_batches(),
        "false_claim": false_claim().to_json(),
    });
    let made = serde_json::to_string_pretty(&file).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/bindings.json");
    if std::env::var_os("CORRNOISE_BLESS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap_or_default() == made,
        "CORRNOISE_BLESS=1 writes {path} anew"
    );
}
