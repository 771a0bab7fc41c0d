//! The report of a run: a table of mutants made, killed and surviving, by module, gradient type and operator.

use crate::excused::{Excuse, Kind};
use crate::judge::Verdict;
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}: {}", self.module, self.kernel, self.operator, self.change)
    }
}

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
    /// The mutant's class, whatever the verdict.
    pub excuse: Option<Excuse>,
}

impl Outcome {
    /// Whether the mutant survived, for a reason of this kind or, with none, for no known reason.
    fn survived(&self, kind: Option<Kind>) -> bool {
        self.verdict == Verdict::Survived && self.excuse.map(|excuse| excuse.kind) == kind
    }
}

#[derive(Clone, Copy, Default)]
struct Count {
    made: usize,
    killed: usize,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        self.made += 1;
        self.killed += usize::from(matches!(outcome.verdict, Verdict::Killed(_)));
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
    /// The survivors that belong to no class.
    pub fn unexplained(&self) -> Vec<&Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.survived(None)).collect()
    }

    /// The mutants that were killed although their class calls them equivalent.
    pub fn misjudged(&self) -> Vec<&Outcome> {
        let is_equivalent = |o: &&Outcome| o.excuse.is_some_and(|excuse| excuse.kind == Kind::Equivalent);
        let killed = |o: &&Outcome| matches!(o.verdict, Verdict::Killed(_));
        self.outcomes.iter().filter(is_equivalent).filter(killed).collect()
    }

    /// The number of survivors of a kind.
    pub fn survivors_of(&self, kind: Kind) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.survived(Some(kind))).count()
    }

    /// The share of mutants that were killed among those that are not equivalent.
    pub fn share(&self) -> f64 {
        self.killed() as f64 / (self.outcomes.len() - self.survivors_of(Kind::Equivalent)).max(1) as f64
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
        let mut reasons: BTreeMap<Option<Excuse>, Vec<&Outcome>> = BTreeMap::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Survived) {
            reasons.entry(outcome.excuse).or_default().push(outcome);
        }
        for (excuse, outcomes) in &reasons {
            let title = match excuse {
                Some(Excuse { kind, reason }) => format!("{}: {reason}", kind.name()),
                None => "NOT NOTICED".to_owned(),
            };
            writeln!(f, "\n{} survivors, {title}", outcomes.len())?;
            outcomes.iter().try_for_each(|outcome| writeln!(f, "  {outcome}"))?;
        }
        let misjudged = self.misjudged();
        if !misjudged.is_empty() {
            writeln!(f, "\n{} KILLED, ALTHOUGH THEIR CLASS CALLS THEM EQUIVALENT", misjudged.len())?;
        }
        for outcome in misjudged {
            let reason = outcome.excuse.map_or("", |excuse| excuse.reason);
            writeln!(f, "  {outcome}\n    {:?}\n    class: {reason}", outcome.verdict)?;
        }
        let [equivalent, out_of_reach, too_rare] = Kind::ALL.map(|kind| self.survivors_of(kind));
        let (made, killed, unexplained) = (self.outcomes.len(), self.killed(), self.unexplained().len());
        writeln!(
            f,
            "\n{made} mutants: {killed} killed, {equivalent} equivalent, {out_of_reach} out of reach, {too_rare} too rare, \
             {unexplained} not noticed; {} variants were refused\n\
             {killed} of {} that are not equivalent were killed: {:.2}%; {} classes' verdicts were wrong",
            self.refused,
            made - equivalent,
            100.0 * self.share(),
            self.misjudged().len()
        )
    }
}
