//! BLTs of least loss.
use corrnoise_planner::optimize::{Problem, Target, blt, unobserved};
use corrnoise_planner::{Blt, Factorization, Kind, Participation, Strategy, Workload};

#[test]
fn probe() {
    for target in [Target::Max, Target::Rms] {
        for n in [8, 16, 64] {
            let mut line = format!("{n}");
            for d in 1..=8 {
                let best = blt::optimize(&Problem::streaming(n, target), d, &mut unobserved()).unwrap();
                let Strategy::Blt(b) = best.factorization.strategy() else { panic!() };
                line += &format!(
                    " {:.5}({},{:.0}ms,{})",
                    best.loss,
                    b.num_buffers(),
                    best.time.as_secs_f64() * 1e3,
                    best.iterations
                );
            }
            println!("{line}");
        }
    }
    let ms = |min_sep, max_participations| Participation::MinSep { min_sep, max_participations };
    let mom = Workload::momentum(0.9, 0.0).unwrap();
    let momd = Workload::momentum(0.95, 1e-3).unwrap();
    for (n, w, p) in [
        (1000, Workload::Prefix, ms(100, 10)),
        (1000, Workload::Prefix, ms(10, 100)),
        (1000, Workload::Prefix, ms(500, 2)),
        (1000, Workload::Prefix, Participation::Full),
        (100_000, Workload::Prefix, Participation::Full),
        (10_000_000, Workload::Prefix, ms(10_000, 1000)),
        (10_000_000, Workload::Prefix, ms(10, 1000)),
        (1000_000, Workload::Prefix, ms(10, 100_000)),
        (1000, mom.clone(), Participation::Single),
        (1000, mom.clone(), ms(100, 10)),
        (1000, momd.clone(), ms(100, 10)),
        (1000, momd.clone(), Participation::Single),
        (10000, mom.clone(), Participation::Single),
        (30000, mom.clone(), Participation::Single),
        (1000_000, mom.clone(), Participation::Single),
    ] {
        for d in [1, 2, 3, 4, 5, 6] {
            if n >= 100_000 && d != 4 {
                continue;
            }
            let p =
                Problem { num_steps: n, workload: w.clone(), participation: p.clone(), target: Target::Max };
            let best = blt::optimize(&p, d, &mut unobserved()).unwrap();
            let r = Factorization::new(Strategy::Blt(Blt::rational(d, n as u64).unwrap()), n).unwrap();
            let (r, _) = p.loss(&r).unwrap();
            let Strategy::Blt(b) = best.factorization.strategy() else { panic!() };
            println!(
                "{n} {d} {w:?} {:?}: {} rational {r} {:?} {:?} {} {:.3?} {:.9?}",
                p.participation,
                best.loss,
                best.kind,
                best.time,
                best.iterations,
                b.scale(),
                b.decay().iter().map(|x| 1.0 - x).collect::<Vec<_>>()
            );
        }
    }
}
