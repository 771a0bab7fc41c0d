//! The report of a run: a table of mutants made, killed and surviving, by module, gradient type and operator.

use crate::judge::Verdict;
use std::collections::BTreeMap;
use std::fmt;

/// One mutant and its verdict.
pub struct Outcome {
    /// The name of the module.
    pub module: String,
    /// The kernel's name without `noise_`.
    pub kernel: String,
    /// The name of the operator.
    pub operator: String,
    /// The line, counted from 1, and what was changed.
    pub change: String,
    /// The verdict: killed or survived.
    pub verdict: Verdict,
    /// The reason why a survivor is equivalent to the original.
    pub excuse: Option<&'static str>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    made: usize,
    killed: usize,
    excused: usize,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        self.made += 1;
        self.killed += usize::from(matches!(outcome.verdict, Verdict::Killed(_)));
        self.excused += usize::from(outcome.verdict == Verdict::Survived && outcome.excuse.is_some());
    }

    fn survived(self) -> usize {
        self.made - self.killed
    }
}

/// The outcomes of a run.
#[derive(Default)]
pub struct Report {
    /// Every mutant that loaded.
    pub outcomes: Vec<Outcome>,
    /// Variants that the stand-in or the compiler refused.
    pub refused: usize,
}

impl Report {
    /// The survivors that no class excuses.
    pub fn unexplained(&self) -> Vec<&Outcome> {
        let survived = |outcome: &&Outcome| outcome.verdict == Verdict::Survived && outcome.excuse.is_none();
        self.outcomes.iter().filter(survived).collect()
    }

    /// The number of mutants that were killed.
    pub fn killed(&self) -> usize {
        self.outcomes.iter().filter(|outcome| matches!(outcome.verdict, Verdict::Killed(_))).count()
    }

    fn counts(&self, by: impl Fn(&Outcome) -> (String, String)) -> BTreeMap<(String, String), Count> {
        let mut counts: BTreeMap<(String, String), Count> = BTreeMap::new();
        for outcome in &self.outcomes {
            counts.entry(by(outcome)).or_default().add(outcome);
        }
        counts
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.counts(|o| (format!("{} {}", o.module, o.kernel), o.operator.clone()));
        let mut columns: Vec<String> = rows.keys().map(|(_, operator)| operator.clone()).collect();
        columns.sort_unstable();
        columns.dedup();
        writeln!(f, "made/killed/survived\n")?;
        write!(f, "{:20}", "")?;
        columns.iter().try_for_each(|column| write!(f, "{column:>11}"))?;
        writeln!(f, "{:>12}", "all")?;
        let mut names: Vec<String> = rows.keys().map(|(name, _)| name.clone()).collect();
        names.dedup();
        for name in names.iter().map(String::as_str).chain(["all"]) {
            write!(f, "{name:20}")?;
            let chosen = |o: &&Outcome| name == "all" || format!("{} {}", o.module, o.kernel) == name;
            for column in columns.iter().map(String::as_str).chain(["all"]) {
                let mut count = Count::default();
                let of =
                    self.outcomes.iter().filter(chosen).filter(|o| column == "all" || o.operator == column);
                of.for_each(|outcome| count.add(outcome));
                let text = match count.made {
                    0 => "-".to_owned(),
                    made => format!("{made}/{}/{}", count.killed, count.survived()),
                };
                let width = if column == "all" { 12 } else { 11 };
                write!(f, "{text:>width$}")?;
            }
            writeln!(f)?;
        }
        self.survivors(f)
    }
}

impl Report {
    fn survivors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Survived) {
            reasons.entry(outcome.excuse.unwrap_or("")).or_default().push(outcome);
        }
        for (reason, outcomes) in &reasons {
            let title = if reason.is_empty() { "NOT NOTICED" } else { reason };
            writeln!(f, "\n{} survivors: {title}", outcomes.len())?;
            for o in outcomes {
                writeln!(f, "  {} {} {}: {}", o.module, o.kernel, o.operator, o.change)?;
            }
        }
        let (made, killed) = (self.outcomes.len(), self.killed());
        let excused = made - killed - self.unexplained().len();
        writeln!(
            f,
            "\n{made} mutants: {killed} killed, {excused} survive for a known reason, {} were not noticed; {} variants were refused",
            self.unexplained().len(),
            self.refused
        )
    }
}
