//! Values and gradients against differences and closed forms.

use super::*;

fn problem(n: usize, workload: &Workload, participation: Participation, objective: Objective) -> Problem {
    Problem { num_steps: n, workload: workload.clone(), participation, objective }
}

/// Systems of one to five buffers; the last has λ̃₁ < 0.
fn systems() -> Vec<Vec<Buffer>> {
    let system = |pairs: &[(f64, f64)]| {
        pairs
            .iter()
            .map(|&(scale, mu)| Buffer { scale, decay: Decay { value: 1.0 - mu, complement: mu } })
            .collect()
    };
    vec![
        system(&[(0.3, 0.1)]),
        system(&[(0.25, 0.6), (0.07, 0.02)]),
        system(&[(0.3, 0.7), (0.1, 0.15), (0.03, 1e-3)]),
        system(&[(0.2, 0.8), (0.2, 0.3), (0.07, 0.02), (0.01, 1e-4), (3e-3, 1e-6)]),
        system(&[(0.75, 0.9), (0.2, 0.25)]),
    ]
}

#[test]
fn slopes_match_central_differences() {
    let nesterov = Workload::nesterov(0.8).unwrap();
    let momentum = Workload::momentum(0.9, 0.01).unwrap();
    let min_sep = |min_sep, max_participations| Participation::MinSep { min_sep, max_participations };
    let mut checked = 0;
    for objective in [Objective::Max, Objective::Rms] {
        for (n, workload, participation) in [
            (1, &Workload::Prefix, Participation::Single),
            (2, &Workload::Prefix, Participation::Single),
            (37, &Workload::Prefix, Participation::Single),
            (10_000, &Workload::Prefix, Participation::Single),
            (1_000_000_000, &Workload::Prefix, Participation::Single),
            (1000, &Workload::Prefix, min_sep(100, 10)),
            (1003, &Workload::Prefix, min_sep(100, 4)),
            (50, &Workload::Prefix, Participation::Full),
            (53, &Workload::Prefix, Participation::Cyclic { separation: 2, max_participations: 20 }),
            (200, &nesterov, Participation::Single),
            (300, &momentum, min_sep(30, 7)),
        ] {
            let model = Model::new(&problem(n, workload, participation, objective)).unwrap();
            for buffers in systems() {
                let analytic = model.log_loss_squared(&buffers);
                assert!(analytic.value.is_finite());
                for i in 0..buffers.len() {
                    let own = [buffers[i].scale, buffers[i].decay.complement.min(buffers[i].decay.value)];
                    for (parameter, own) in own.into_iter().enumerate() {
                        let step = 1e-4 * own;
                        // Fourth order: the error of the difference is far below what is asked.
                        let at = |steps: f64| {
                            let mut moved = buffers.clone();
                            let decay = &mut moved[i].decay;
                            match parameter {
                                0 => moved[i].scale += steps * step,
                                _ => {
                                    *decay = Decay {
                                        value: decay.value + steps * step,
                                        complement: decay.complement - steps * step,
                                    }
                                }
                            }
                            model.log_loss_squared(&moved).value
                        };
                        let numeric = (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * step);
                        let slope = analytic.slope[i][parameter];
                        // Relative to the slope, or to what rounding leaves of the difference: 1e-15·|value| / (1e-4·own).
                        let bound = 1e-6 * slope.abs() + 1e-10 * (1.0 + analytic.value.abs()) / own;
                        let case = (n, objective, buffers.len(), i, parameter);
                        assert!((slope - numeric).abs() < bound, "{case:?}: {slope} for {numeric}");
                        checked += 1;
                    }
                }
            }
        }
    }
    assert_eq!(checked, 2 * 11 * 2 * 13);
}

#[test]
fn values_are_those_of_the_blt() {
    for buffers in systems() {
        let (scale, decay): (Vec<f64>, Vec<f64>) = buffers.iter().map(|u| (u.scale, u.decay.value)).unzip();
        let blt = crate::Blt::new(&scale, &decay).unwrap();
        let participation = Participation::MinSep { min_sep: 7, max_participations: 11 };
        for (objective, error) in
            [(Objective::Max, blt.max_error_squared(95)), (Objective::Rms, blt.mean_error_squared(95))]
        {
            let mut model =
                Model::new(&problem(95, &Workload::Prefix, participation.clone(), objective)).unwrap();
            let expected = (blt.min_sep_sensitivity_squared(95, 7, 11) * error).ln();
            let closed = model.log_loss_squared(&buffers);
            // The same prefix sums as coefficients of any workload.
            model.coefs = Some(vec![1.0; 95]);
            let run = model.log_loss_squared(&buffers);
            for (got, slope) in [(closed.value, closed.slope), (run.value, run.slope)] {
                assert!((got - expected).abs() < 1e-9, "{got} for {expected}");
                for (a, b) in slope.iter().flatten().zip(closed.slope.iter().flatten()) {
                    assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()), "{slope:?} for {:?}", closed.slope);
                }
            }
        }
    }
}
