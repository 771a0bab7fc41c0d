//! The forms that make rows ahead, and comparisons of all of them.

use super::Onto;
use super::ahead::{Case, Pair, add_module, compare_ahead};
use super::module::{compiler, one_of, part};
use corrnoise::{Form, Isa, Plan, Rounds, Shard};
use corrnoise_testkit::cases::{every_form, inverse_square_root_coefs, square_root_coefs};
use half::{bf16, f16};
use std::collections::BTreeSet;

pub(crate) fn within(range: std::ops::Range<u64>) -> Shard {
    Shard::whole(1 << 40).unwrap().within(range).unwrap()
}

fn blt(buffers: usize) -> Form {
    every_form(1).swap_remove(buffers).1
}

fn ring(bands: usize) -> Form {
    Form::banded_toeplitz(&square_root_coefs(bands)).unwrap()
}

fn regenerate(terms: usize) -> Form {
    Form::regenerate(&inverse_square_root_coefs(terms)).unwrap()
}

/// Every kind of form that makes rows ahead, with the kernels that make them and a number of steps that shows all they do.
pub(crate) fn forms() -> Vec<(&'static [&'static str], Form, u64)> {
    const RINGS: &[&str] = &["make_ring8", "make_ring16"];
    let steps = 43_usize;
    let varying: Vec<Vec<f64>> = (0..steps)
        .map(|t| (0..=t.min(3 + t % 6)).map(|a| 1.5 / (1.0 + a as f64 + 0.1 * t as f64)).collect())
        .collect();
    let restarted = |form: Form, every| form.with_restarts(every).unwrap();
    let mut forms: Vec<(&[&str], Form, u64)> = vec![
        (&["make_blt1"], restarted(blt(1), 1), 20),
        (&["make_blt2"], restarted(blt(2), 5), 39),
        (&["make_blt3"], restarted(blt(3), 13), 39),
        (&["make_blt8"], blt(8), 34),
        (RINGS, Form::banded(&varying).unwrap(), steps as u64),
        (RINGS, restarted(ring(5), 3), 37),
        (RINGS, restarted(ring(16), 13), 45),
        (RINGS, restarted(ring(16), 29), 70),
        (&["make_regenerate"], restarted(regenerate(9), 14), 40),
    ];
    for (bands, steps) in
        [(1, 20), (2, 20), (8, 40), (9, 40), (16, 53), (17, 53), (64, 150), (65, 150), (140, 300)]
    {
        forms.push((RINGS, ring(bands), steps));
    }
    forms.extend([1, 2, 12].map(|terms| (&["make_regenerate"][..], regenerate(terms), 35)));
    forms
}

/// Compares 256,003 coordinates × 40 steps of every kernel, a turn of as many rows as it makes: more than ten million values,
/// and a tenth of them unless everything is asked for.
#[test]
fn values_of_rows_ahead() {
    let Some(compiler) = compiler() else { return };
    let shard = within(5..part(256_008));
    let add = add_module(&compiler, None);
    let mut kernels: Vec<_> = (1..=8).map(|d| (format!("make_blt{d}"), blt(d), 8)).collect();
    kernels.push(("make_ring8".into(), ring(16), 8));
    kernels.push(("make_ring16".into(), ring(20), 16));
    kernels.push(("make_regenerate".into(), regenerate(4), 8));
    for (name, form, rows_ahead) in kernels {
        let pair = Pair::new(&compiler, &name, &add, None);
        let plan = Plan::new(40, form, 0.7313).unwrap();
        let case = Case { plan: &plan, shard: &shard, rows_ahead, begin: 0, isa: Isa::Auto };
        assert_eq!(compare_ahead::<f32>(&pair, &case, Onto::Plain), None, "{name}");
    }
    let pair = Pair::new(&compiler, "make_blt1", &add, None);
    let plan = Plan::new(40, blt(1), 0.7313).unwrap();
    let case = Case { plan: &plan, shard: &shard, rows_ahead: 8, begin: 0, isa: Isa::Auto };
    for (element, difference) in [
        ("f32", compare_ahead::<f32>(&pair, &case, Onto::Values)),
        ("bf16", compare_ahead::<bf16>(&pair, &case, Onto::Values)),
        ("f16", compare_ahead::<f16>(&pair, &case, Onto::Values)),
    ] {
        assert_eq!(difference, None, "{element}");
    }
}

/// Compares every kind of form with several numbers of rows ahead, on more and on fewer tiles than phases, from the start and from a
/// state in the middle, with coordinates below and beyond 2^36.
#[test]
fn every_turn_of_rows_ahead() {
    let Some(compiler) = compiler() else { return };
    let add = add_module(&compiler, None);
    let shards = [within(700..703), within((1 << 36) - 700..(1 << 36) + 613), within(3..512 * 11 + 7)];
    let names: BTreeSet<&str> = forms().iter().flat_map(|(names, ..)| names.iter().copied()).collect();
    let mut cases = 0;
    for name in names {
        let pair = Pair::new(&compiler, name, &add, None);
        for (_, form, steps) in forms().into_iter().filter(|(names, ..)| names.contains(&name)) {
            for (i, rows_ahead) in [1, 3, 8, 16].into_iter().filter(|k| *k <= pair.max_rows).enumerate() {
                let rounds = [Rounds::R12, Rounds::R8, Rounds::R20][i % 3];
                let plan = Plan::new(steps, form.clone(), 0.7313).unwrap().with_rounds(rounds).unwrap();
                let begins = shards.iter().flat_map(|shard| [0, 7].map(|begin| (shard, begin)));
                for (shard, begin) in begins.skip(i % one_of()).step_by(one_of()) {
                    let case = Case { plan: &plan, shard, rows_ahead, begin, isa: Isa::Scalar };
                    let difference = compare_ahead::<f32>(&pair, &case, Onto::Plain);
                    assert_eq!(
                        difference, None,
                        "{name}, {form:?}, {rows_ahead} rows, {shard:?}, from {begin}"
                    );
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} cases");
}
