//! The f32 stream against linear algebra in f64 on the same `Z`.

use corrnoise::backend::{Add, Backend, Step};
use corrnoise::form::{Kernel, Regenerate};
use corrnoise::{Cpu, CpuOptions, Form, Gradients, Incarnations, Key, Mechanism, Plan, Shard};
use corrnoise_testkit::cases::{inverse_square_root_coefs, square_root_coefs};

const DIM: usize = 1024;

fn key() -> Key {
    Key::from_bytes([21; 32], "accuracy")
}

/// The rows that a plan's mechanism adds, and the i.i.d. rows behind them.
fn stream(plan: &Plan) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    // `Z` itself: the reference's normals under this plan's run key.
    let run_key = key().run_key(plan.fingerprint());
    let keys = [key().run_key(plan.fingerprint())];
    let shard = Shard::whole(DIM as u64).unwrap();
    let mut cpu = Cpu::new(plan, &keys, &shard, CpuOptions::default()).unwrap();
    let row = |t| {
        let (mut out, mut terms) = (vec![0.0_f32; DIM], Vec::new());
        let step = Step::lower(plan, t, &Incarnations::first(), &mut terms).unwrap();
        // Before the output grid, which would hide the last digits.
        let step = Step { add: Add::Plain(plan.scale(t)), ..step };
        cpu.step(&step, Gradients::new(&mut [&mut out[..]])).unwrap();
        out
    };
    let correlated = (0..plan.num_steps()).map(row).collect::<Vec<_>>();
    let cipher = corrnoise::chacha::ChaCha::new(run_key.bytes(), plan.rounds());
    let iid = (0..plan.num_steps())
        .map(|t| {
            let row = corrnoise::Row::new(corrnoise::Family::Step, 0, t).unwrap();
            (0..DIM as u64).map(|c| corrnoise::noise::normal(&cipher, row, c)).collect()
        })
        .collect();
    (correlated, iid)
}

/// Solves `C x = z` for lower-triangular `C` in f64: the dense `C⁻¹Z`.
fn solve(c: &[Vec<f64>], z: &[Vec<f32>]) -> Vec<Vec<f64>> {
    let mut x: Vec<Vec<f64>> = Vec::new();
    for t in 0..z.len() {
        let row = (0..DIM)
            .map(|i| (f64::from(z[t][i]) - (0..t).map(|s| c[t][s] * x[s][i]).sum::<f64>()) / c[t][t])
            .collect();
        x.push(row);
    }
    x
}

fn relative_error(got: &[Vec<f32>], exact: &[Vec<f64>]) -> f64 {
    let (mut error, mut norm) = (0.0, 0.0);
    for (row, exact) in got.iter().zip(exact) {
        for (x, y) in row.iter().zip(exact) {
            error += (f64::from(*x) - y).powi(2);
            norm += y * y;
        }
    }
    (error / norm).sqrt()
}

/// The lower-triangular Toeplitz matrix with these coefficients.
fn toeplitz(coefs: &[f64], n: usize) -> Vec<Vec<f64>> {
    let entry = |t: usize, s: usize| if s <= t { coefs.get(t - s).copied().unwrap_or(0.0) } else { 0.0 };
    (0..n).map(|t| (0..n).map(|s| entry(t, s)).collect()).collect()
}

#[test]
fn every_form_is_its_dense_inverse() {
    let n = 256;
    let (scale, decay) = ([0.29, 0.13, 0.06, 0.015], [0.22, 0.71, 0.944, 0.9957]);
    let blt_coefs: Vec<f64> = (0..n)
        .map(|t| match t {
            0 => 1.0,
            _ => scale.iter().zip(decay).map(|(a, l)| a * f64::powi(l, t as i32 - 1)).sum(),
        })
        .collect();
    let root = square_root_coefs(n);
    let scaled: Vec<f64> = root[..16].iter().map(|c| 3.0 * c).collect();
    let banded: Vec<Vec<f64>> = (0..n)
        .map(|t| (0..=t.min(7)).map(|a| (1.0 + t as f64 / n as f64) / (1.0 + a as f64)).collect())
        .collect();
    let banded_dense = (0..n)
        .map(|t| (0..n).map(|s| if s <= t && t - s < 8 { banded[t][t - s] } else { 0.0 }).collect())
        .collect();
    let inverse = inverse_square_root_coefs(n);
    let dense_rows: Vec<Vec<f64>> = (0..n).map(|t| inverse[..=t].to_vec()).collect();
    let cases: Vec<(&str, Form, Vec<Vec<f64>>)> = vec![
        ("independent", Form::independent(), toeplitz(&[1.0], n)),
        ("blt", Form::blt(&scale, &decay).unwrap(), toeplitz(&blt_coefs, n)),
        ("banded Toeplitz", Form::banded_toeplitz(&scaled).unwrap(), toeplitz(&scaled, n)),
        ("banded", Form::banded(&banded).unwrap(), banded_dense),
        ("Toeplitz inverse", Form::regenerate(&inverse).unwrap(), toeplitz(&root, n)),
        ("dense", Kernel::Regenerate(Regenerate::varying(&dense_rows).unwrap()).into(), toeplitz(&root, n)),
    ];
    for (name, form, c) in cases {
        let plan = Plan::new(n as u64, form, 1.0).unwrap();
        let (correlated, iid) = stream(&plan);
        let error = relative_error(&correlated, &solve(&c, &iid));
        println!("{name}: relative error {error:.2e}");
        assert!(error < 1e-5, "{name}: {error}");
    }
}

#[test]
fn a_slow_decay_stays_accurate_for_a_hundred_thousand_steps() {
    let steps = 100_000;
    let (scale, decay) = ([0.004, 0.3], [0.9999, 0.5]);
    let plan = Plan::new(steps, Form::blt(&scale, &decay).unwrap(), 1.0).unwrap();
    let dim = 16;
    let mut mechanism = Mechanism::cpu(&plan, key(), Shard::whole(dim as u64).unwrap()).unwrap();
    let run_key = key().run_key(plan.fingerprint());
    let cipher = corrnoise::chacha::ChaCha::new(run_key.bytes(), plan.rounds());
    // The recurrence in f64, with the coefficients that run (rounded to f32).
    let rounded = |values: [f64; 2]| values.map(|v| f64::from(v as f32));
    let (scale, decay) = (rounded(scale), rounded(decay));
    let mut buffers = vec![[0.0_f64; 2]; dim];
    let (mut error, mut norm) = (0.0, 0.0);
    for t in 0..steps {
        let mut out = vec![0.0_f32; dim];
        mechanism.add_to(&mut out).unwrap();
        let row = corrnoise::Row::new(corrnoise::Family::Step, 0, t).unwrap();
        for (i, m) in buffers.iter_mut().enumerate() {
            let z = f64::from(corrnoise::noise::normal(&cipher, row, i as u64));
            let exact = z - scale[0] * m[0] - scale[1] * m[1];
            *m = [decay[0] * m[0] + exact, decay[1] * m[1] + exact];
            error += (f64::from(out[i]) - exact).powi(2);
            norm += exact * exact;
        }
    }
    let relative = (error / norm).sqrt();
    println!("relative RMS error {relative:.2e}");
    assert!(relative < 1e-3, "{relative}");
}
