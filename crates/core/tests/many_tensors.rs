//! Models of very many tensors: what is done per tensor takes the same time for each, however many there are.

use corrnoise_core::{Checkpoint, Cpu, CpuOptions, Form, Key, Layout, Mechanism, Plan, Resume};
use std::time::{Duration, Instant};

/// Seconds of each stage, the shortest of a few runs: another process can only make them longer.
#[derive(Debug)]
struct Times {
    layout: Duration,
    select: Duration,
    save: Duration,
    resume: Duration,
}

fn key() -> Key {
    Key::from_bytes([3; 32], "many tensors")
}

fn measure(tensors: usize) -> Times {
    let plan = Plan::new(9, Form::blt(&[0.3, 0.1], &[0.5, 0.95]).unwrap(), 0.5).unwrap();
    let names: Vec<String> = (0..tensors).map(|i| format!("layers.{i}.weight")).collect();
    let options = CpuOptions { threads: 1, ..CpuOptions::default() };
    let mut least = [Duration::MAX; 4];
    for _ in 0..5 {
        let start = Instant::now();
        let layout = Layout::new(names.iter().map(|name| (name.as_str(), 5))).unwrap();
        let laid_out = Instant::now();
        // A piece of every tensor, as a process of many owns it.
        let pieces: Vec<_> = layout.tensors().iter().map(|t| t.coords.start + 1..t.coords.end).collect();
        let shard = layout.whole().select(&pieces).unwrap();
        let selected = Instant::now();
        let mechanism = Mechanism::cpu_with(&plan, key(), shard.clone(), options).unwrap();
        let state = mechanism.state().unwrap();
        let saved = Instant::now();
        let saved_state = vec![Checkpoint::from_bytes(state).unwrap()];
        let cpu = |keys: &[_], shard: &_| Cpu::new(&plan, keys, shard, options);
        let resumed = Mechanism::resume_from(&plan, key(), shard, saved_state, Resume::Exact, cpu).unwrap();
        let end = Instant::now();
        assert_eq!(resumed.shard().segments().len(), tensors);
        let stages = [laid_out - start, selected - laid_out, saved - selected, end - saved];
        least = std::array::from_fn(|i| least[i].min(stages[i]));
    }
    let [layout, select, save, resume] = least;
    Times { layout, select, save, resume }
}

/// Eight times as many tensors take some 8 times as long; were a stage quadratic, 64 times.
#[test]
fn time_is_proportional_to_the_number_of_tensors() {
    let (few, many) = (measure(7_500), measure(60_000));
    println!("7,500 tensors: {few:?}\n60,000 tensors: {many:?}");
    let stages = [
        ("layout", few.layout, many.layout),
        ("select", few.select, many.select),
        ("save", few.save, many.save),
        ("resume", few.resume, many.resume),
    ];
    for (stage, few, many) in stages {
        let ratio = many.as_secs_f64() / few.as_secs_f64();
        assert!(ratio < 28.0, "{stage}: {ratio} times as long for 8 times as many tensors");
    }
}
