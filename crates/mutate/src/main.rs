//! The command `cargo run -p corrnoise-mutate -- --count 300`: mutates the kernels and lists the mutants that no test noticed.

use corrnoise_mutate::draw::Filter;
use corrnoise_mutate::run::{Options, run};
use corrnoise_mutate::{coverage, ptx, source};
use std::process::ExitCode;

const HELP: &str = "\
Mutates the CUDA kernels, one change at a time, and tells which mutants the cases notice.

  --count N          how many mutants (300)
  --seed N           names the sequence of mutants (1)
  --module NAME      only this module of crates/cuda/ptx; may be given again
  --kernel NAME      only those of a number type (bf16), make, stage, advance or finish; may be given again
  --operator NAME    only this operator; may be given again
  --line N           only this line of a module, counted from 1; may be given again
  --jobs N           judged at a time (the number of cores)
  --source           mutates kernels/*.cu and *.cuh, through the pinned compiler of kernels/build
  --coverage         no mutants: says which instructions no small case executes
  --trust            spares mutants that a class calls equivalent the large cases
  --verbose          says every verdict as it is known

Exit status 1 if a mutant survives without a known reason, or is killed although its class calls it equivalent.";

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let filter = Filter::default();
    let mut options = Options { seed: 1, count: 300, filter, jobs, verbose: false, trust: false };
    while let Some(name) = arguments.next() {
        if name == "--help" {
            return Ok(None);
        }
        if name == "--coverage" {
            options.count = 0;
            continue;
        }
        if name == "--trust" {
            options.trust = true;
            continue;
        }
        if name == "--verbose" {
            options.verbose = true;
            continue;
        }
        let value =
            arguments.next().ok_or_else(|| format!("{name}: expected a value, or an option of --help"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{name} is {value:?}: expected a whole number"));
        match name.as_str() {
            "--count" => options.count = number()? as usize,
            "--seed" => options.seed = number()?,
            "--jobs" => options.jobs = number()? as usize,
            "--module" => options.filter.modules.push(value),
            "--kernel" => options.filter.kernels.push(value),
            "--operator" => options.filter.operators.push(value),
            "--line" => options.filter.lines.push(number()? as usize),
            _ => return Err(format!("unknown option {name}: expected one of --help")),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    let sources = std::env::args().any(|argument| argument == "--source");
    let arguments = std::env::args().skip(1).filter(|argument| argument != "--source");
    let report = parse(arguments).and_then(|options| match options {
        None => {
            println!("{HELP}");
            Ok(None)
        }
        Some(options) if options.count == 0 => {
            for unreached in coverage::unreached(&ptx::committed()?, &options.filter)? {
                println!("{unreached}");
            }
            Ok(None)
        }
        Some(options) if sources => source::run(&ptx::committed()?, &options).map(Some),
        Some(options) => run(&ptx::committed()?, &options).map(Some),
    });
    match report {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(report)) => {
            println!("{report}");
            ExitCode::from(u8::from(!report.unexplained().is_empty() || !report.misjudged().is_empty()))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
