//! The figure in `docs/batch-size.md`: its table has the orderings that the text describes, and some of its entries are recomputed.

use corrnoise::Sampling;
use corrnoise::planner::account::{Budget, gdp_mu_of_budget};
use corrnoise::planner::optimize::{Objective, Problem, toeplitz, unobserved};
use corrnoise::planner::{
    Adjacency, Factorization, Goal, Participation, PrivacyUnit, Schedule, Strategy, Terms, Workload,
    calibrate, calibrate_bands, verify,
};
use corrnoise_testkit::batch_size::{DATASET, Row, STEPS};

fn table() -> Vec<Row> {
    let parse = |line| Row::parse(line).unwrap_or_else(|| panic!("{line}"));
    include_str!("../docs/batch-size.tsv").lines().skip(1).map(parse).collect()
}

#[test]
fn the_table_says_what_the_text_says() {
    let rows = table();
    assert_eq!(rows.len(), 26);
    for pair in rows.windows(2).filter(|pair| pair[0].epsilon == pair[1].epsilon) {
        // Larger batches lose less, whatever the mechanism.
        assert!(pair[1].independent <= pair[0].independent && pair[1].banded <= pair[0].banded);
        assert!(pair[1].independent_sampled <= pair[0].independent_sampled);
        assert!(pair[1].banded_sampled <= pair[0].banded_sampled);
        assert!(
            pair[1].banded_sampled_bands <= pair[0].banded_sampled_bands,
            "more sampling leaves fewer bands"
        );
    }
    for row in &rows {
        // Neither correlation nor sampling ever hurts, and both together are best (half a percent is the search for the bands).
        assert!(row.banded <= row.independent && row.independent_sampled <= row.independent);
        assert!(row.banded_sampled <= 1.005 * row.banded.min(row.independent_sampled), "{}", row.batch);
    }
    let at =
        |epsilon: f64, batch: u64| rows.iter().find(|r| r.epsilon == epsilon && r.batch == batch).unwrap();
    // With full batches, all mechanisms are the same.
    for epsilon in [1.0, 10.0] {
        let full = at(epsilon, 4096);
        assert!((full.banded / full.independent - 1.0).abs() < 1e-4 && full.banded_sampled_bands == 1);
    }
    // ε = 10: correlation gives most of the benefit. ε = 1: amplification adds much for small batches, and sampled independent noise
    // overtakes unsampled correlated noise as batches grow.
    for batch in [2, 8, 32, 128] {
        let (strict, loose) = (at(1.0, batch), at(10.0, batch));
        assert!(loose.banded < loose.independent_sampled && loose.banded < 1.1 * loose.banded_sampled);
        assert!(batch > 8 || strict.banded > 1.5 * strict.banded_sampled);
    }
    assert!(at(1.0, 8).banded < at(1.0, 8).independent_sampled);
    assert!(at(1.0, 16).banded > at(1.0, 16).independent_sampled);
}

#[test]
fn entries_come_out_again() {
    let rows = table();
    let row = rows.iter().find(|row| row.epsilon == 1.0 && row.batch == 64).unwrap();
    let budget = Budget::new(1.0, 1e-6).unwrap();
    let terms = |sampling| Terms {
        schedule: Schedule::Sampling(sampling),
        adjacency: Adjacency::ZeroOut,
        unit: PrivacyUnit::Example,
        clip_norm: 1.0,
    };
    // The errors come from verified plans, where the table was computed from the losses.
    let error = |strategy: &Factorization, sampling: Sampling| {
        let plan = calibrate(strategy, &terms(sampling), &Workload::Prefix, &Goal::Budget(budget)).unwrap();
        verify(&plan).unwrap().utility.unwrap().max_error / 64.0
    };
    let close = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 3e-5, "{got} {expected}");
    let identity = Factorization::new(Strategy::Identity, STEPS).unwrap();
    let cyclic = Sampling::Cyclic { dataset_size: DATASET, num_batches: 64 };
    close(error(&identity, cyclic), row.independent);
    close(
        error(&identity, Sampling::Poisson { dataset_size: DATASET, sampling_prob: 1.0 / 64.0 }),
        row.independent_sampled,
    );
    let participation = Participation::Cyclic { separation: 64, max_participations: 32 };
    let problem =
        Problem { num_steps: STEPS, workload: Workload::Prefix, participation, objective: Objective::Max };
    let banded = toeplitz::banded(&problem, 64, &mut unobserved()).unwrap();
    close(error(&banded.factorization, cyclic), row.banded);
    close(banded.loss / gdp_mu_of_budget(budget).unwrap() / 64.0, row.banded);
    let (strategy, sampling) = calibrate_bands(&problem, DATASET, 64, budget, 8).unwrap();
    assert_eq!(strategy.num_bands(), row.banded_sampled_bands);
    close(error(&strategy, sampling), row.banded_sampled);
}
