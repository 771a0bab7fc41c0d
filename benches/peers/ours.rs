//! Our side of the peer comparison: it reads one line and answers with one number.
//!
//! `CASE M THREADS STEPS` → median seconds per step of that form on M parameters; `rmw-CASE …` → the same for a plain pass
//! over the same bytes. M may be `64x100`: 100 tensors of 64 values. State is kept until another case is named, and a ring is full before anything is timed.

use corrnoise::{CpuOptions, Key, Layout, Mechanism, Plan, huge_pages};
use corrnoise_testkit::{cases, traffic::Traffic};
use std::io::BufRead;
use std::time::Instant;

/// The number of steps of a plan: enough for any run, but few for a listed form, which holds every one of them.
fn num_steps(case: &str) -> u64 {
    if case == "dense255" { 1024 } else { 1 << 30 }
}

enum Subject {
    Noise(Box<Mechanism>, Vec<Vec<f32>>),
    Traffic(Traffic, usize),
}

impl Subject {
    fn new(case: &str, (dim, tensors): (usize, usize), threads: usize) -> Result<Subject, String> {
        let (name, rmw) = case.strip_prefix("rmw-").map_or((case, false), |name| (name, true));
        let form = cases::form(name, num_steps(name))
            .ok_or(format!("no case {case:?}: expected {:?}", cases::NAMES))?;
        let form = form.map_err(|error| error.to_string())?;
        let slots = form.num_slots();
        let mut subject = if rmw {
            Subject::Traffic(Traffic::new(&form, dim * tensors), threads)
        } else {
            let noise = || {
                let plan = Plan::new(num_steps(name), form, 0.01)?;
                let options = CpuOptions { threads, ..CpuOptions::default() };
                let layout = Layout::new((0..tensors).map(|i| (i.to_string(), dim as u64)))?;
                Mechanism::cpu_with(&plan, Key::from_os()?, layout.whole(), options)
            };
            let noise = Box::new(noise().map_err(|error| error.to_string())?);
            let mut gradients = vec![vec![0.0; dim]; tensors];
            // PyTorch's gradients have large pages here too.
            gradients.iter_mut().for_each(|gradient| huge_pages(gradient));
            Subject::Noise(noise, gradients)
        };
        for _ in 0..slots + 2 {
            subject.step()?;
        }
        Ok(subject)
    }

    fn step(&mut self) -> Result<(), String> {
        match self {
            Subject::Noise(mechanism, gradients) => {
                let mut gradients: Vec<&mut [f32]> = gradients.iter_mut().map(Vec::as_mut_slice).collect();
                mechanism.add_to_all(&mut gradients).map_err(|error| error.to_string())
            }
            Subject::Traffic(traffic, threads) => {
                traffic.step(*threads);
                Ok(())
            }
        }
    }
}

fn main() {
    let mut current: Option<(String, Subject)> = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match answer(&line, &mut current) {
            Ok(seconds) => println!("{seconds:.9}"),
            Err(message) => println!("error: {message}"),
        }
    }
}

fn answer(line: &str, current: &mut Option<(String, Subject)>) -> Result<f64, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [case, dim, threads, steps] = words[..] else {
        return Err(format!("{line:?}: expected CASE M THREADS STEPS"));
    };
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text:?} is not a whole number"));
    let name = format!("{case} {dim} {threads}");
    if current.as_ref().is_none_or(|(held, _)| *held != name) {
        *current = None;
        let (dim, tensors) = dim.split_once('x').unwrap_or((dim, "1"));
        *current = Some((name, Subject::new(case, (number(dim)?, number(tensors)?), number(threads)?)?));
    }
    let Some((_, subject)) = current else { unreachable!("set above") };
    let mut times = Vec::new();
    for _ in 0..number(steps)?.max(1) {
        let start = Instant::now();
        subject.step()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
