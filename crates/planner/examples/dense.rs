//! Times, iterations and duality gaps of the dense optimiser: `cargo run --release -p corrnoise-planner --example dense`.

use corrnoise_planner::optimize::{Objective, Problem, dense, unobserved};
use corrnoise_planner::{Participation, Result, Workload};

fn main() -> Result<()> {
    println!(
        "{:16} {:>5} {:>6} {:>9} {:>9} {:>8} {:>5} time",
        "", "steps", "objective", "loss", "bound", "gap", "iter"
    );
    for num_steps in [256, 512, 1024, 2048] {
        for objective in [Objective::Max, Objective::Rms] {
            report("prefix", &Problem::streaming(num_steps, objective))?;
        }
    }
    for num_steps in [256, 512] {
        for objective in [Objective::Max, Objective::Rms] {
            let stream = Problem::streaming(num_steps, objective);
            report("momentum", &Problem { workload: Workload::momentum(0.9, 0.01)?, ..stream.clone() })?;
            let (separation, max_participations) = (num_steps / 4, 4);
            let participation = Participation::Cyclic { separation, max_participations };
            report("prefix, cyclic", &Problem { participation, ..stream.clone() })?;
            let participation = Participation::MinSep { min_sep: separation, max_participations };
            report("prefix, min-sep", &Problem { participation, ..stream })?;
        }
    }
    Ok(())
}

fn report(name: &str, problem: &Problem) -> Result<()> {
    let found = dense::optimize(problem, &mut unobserved())?;
    println!(
        "{name:16} {:>5} {:>6} {:>9.6} {:>9.6} {:>8.1e} {:>5} {:.3?}",
        problem.num_steps,
        format!("{:?}", problem.objective),
        found.loss,
        found.lower_bound,
        found.gap(),
        found.iterations,
        found.time
    );
    Ok(())
}
