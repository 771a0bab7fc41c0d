//! BLTs of least loss: the published tables, speed, and that nothing invalid ever comes back.

use corrnoise_planner::optimize::{Problem, Target, blt, unobserved};
use corrnoise_planner::{Blt, Factorization, Kind, Participation, Strategy, Workload};

#[test]
fn probe() {
    for target in [Target::Max, Target::Rms] {
        for log in 3..14 {
            let n = 1usize << log;
            let mut line = format!("{n}");
            for d in 1..=8 {
                let best = blt::optimize(&Problem::streaming(n, target), d, &mut unobserved()).unwrap();
                let Strategy::Blt(b) = best.factorization.strategy() else { panic!() };
                line += &format!(" {:.5}({},{:.0}ms,{})", best.loss, b.num_buffers(), best.time.as_secs_f64() * 1e3, best.iterations);
            }
            println!("{line}");
        }
    }
    for n in [10_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000] {
        for d in [2, 4, 6, 8] {
            let best = blt::optimize(&Problem::streaming(n, Target::Max), d, &mut unobserved()).unwrap();
            let Strategy::Blt(b) = best.factorization.strategy() else { panic!() };
            let r = Factorization::new(Strategy::Blt(Blt::rational(d, n as u64).unwrap()), n).unwrap();
            let (r, _) = Problem::streaming(n, Target::Max).loss(&r).unwrap();
            println!("{n} {d}: {} rational {r} {:?} {} {:?} {:?}", best.loss, best.time, best.iterations, b.scale(), b.decay().iter().map(|x| 1.0 - x).collect::<Vec<_>>());
        }
    }
    for d in [1, 2, 3, 4, 5, 6] {
        let p = Problem { participation: Participation::MinSep { min_sep: 100, max_participations: 10 }, ..Problem::streaming(1000, Target::Max) };
        let best = blt::optimize(&p, d, &mut unobserved()).unwrap();
        println!("minsep {d}: {} {:?} {} {:?}", best.loss, best.time, best.iterations, best.factorization.strategy());
    }
}
