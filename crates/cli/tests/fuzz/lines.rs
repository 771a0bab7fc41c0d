//! Command lines from the parser's own description of itself, so that a new flag is tried without a change here.

use crate::cases::Random;
use crate::common::KEY;
use crate::files::Folder;
use clap::{Arg, ArgAction, CommandFactory};
use std::ffi::OsString;

/// A command line that is tried.
pub(crate) struct Line {
    pub(crate) words: Vec<OsString>,
    /// True if a word was added that must be refused: the command would measure for minutes otherwise.
    pub(crate) spoilt: bool,
}

/// Numbers for every flag. Counts between 100 and the planner's largest are left out, because their plans take long.
const NUMBERS: [&str; 40] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "8",
    "9",
    "30",
    "0.5",
    "1.5",
    "0.01",
    "1e-6",
    "1e-300",
    "5e-324",
    "1e-400",
    "1e308",
    "1e400",
    "inf",
    "-inf",
    "nan",
    "NaN",
    "-0",
    "-1",
    "-1e-9",
    "+5",
    "1e12",
    "1_0",
    "_",
    "1__0",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "0x10",
    "1e",
    "1.",
    ".5",
    "1,5",
    "٣",
    "1e-9999999999",
];

/// Values of flags that are not numbers.
const WORDS: [&str; 47] = [
    "",
    " ",
    "\n",
    "é",
    "\u{202e}x",
    "\u{2028}",
    "🦀",
    "a\tb\nc",
    "-",
    "--",
    "=",
    ":",
    ",",
    "..",
    "0..1",
    "0..9",
    "3..5",
    "9..3",
    "5..5",
    "0..",
    "..9",
    "-1..4",
    "0..18446744073709551615",
    "0..281474976710657",
    "140737488355328..140737488355329",
    "1e1..2e1",
    "single",
    "full",
    "minsep:2,2",
    "minsep:0,1",
    "cyclic:4,2",
    "cyclic:18446744073709551615,2",
    "minsep:1,18446744073709551615",
    "poisson",
    "block-poisson:2",
    "balls-in-bins",
    "random-allocation",
    "spaced-poisson:4",
    "truncated-poisson:20",
    "truncated-poisson:20,2",
    "none",
    "prefix",
    "momentum:0.9",
    "momentum:0.9,0.01",
    "nesterov:nan",
    "max",
    "missing/dir/file.svg",
];

const STRATEGIES: [&str; 26] = [
    "auto",
    "identity",
    "workload",
    "toeplitz",
    "toeplitz-damped:0.5",
    "toeplitz-damped:nan",
    "toeplitz-opt",
    "banded:3",
    "banded-opt:2",
    "banded-full:2",
    "blt:1",
    "blt:2",
    "dense",
    "tree",
    "tree-full",
    "bisr:2",
    "bandinv-opt:2",
    "banded:0",
    "banded:-1",
    "blt:",
    "blt:18446744073709551616",
    "blt:1:1",
    ":",
    "blt:1e400",
    "BLT:2",
    "banded:9999999999999999999999",
];

/// Lines that are answered, to be changed in a place or two.
const ANSWERED: [&str; 16] = [
    "plan --steps 8 --mu 1",
    "plan --steps 8 --mu 1 -s blt:2 --out p.json",
    "plan --steps 8 --mu 1 -s banded:3 --participation minsep:2,2 --out p.json",
    "plan --dataset-size 80 --batch-size 10 --epochs 2 --epsilon 2 --delta 1e-6 -s identity --sampling poisson",
    "plan --min-sep 2 --max-participations 3 --steps 9 --epsilon 8 --delta 1e-8 -s toeplitz",
    "plan --steps 8 --noise-multiplier 2 -s tree -o p.json --max-state-bytes 64",
    "inspect --strategy toeplitz --steps 8",
    "inspect --strategy blt:2 --steps 9 --workload momentum:0.9 --participation cyclic:3,3",
    "inspect --strategy banded-opt:2 --steps 7 --objective rms --column-normalize",
    "inspect single.json --adjacency replace-one",
    "account --epsilon 8 --delta 1e-6",
    "account --sampling-prob 0.01 --steps 8 --noise-multiplier 0.8 --delta 1e-6",
    "account poisson.json",
    "generate --plan blt.json --steps 0..3 --coords 0..9 --key-hex KEY --out o.npy",
    "generate --plan ring.json --steps 2..4 --coords 5..9 --key-file noise.key --run-id r --out old.npy --device scalar",
    "generate --plan tree.json --steps 0..9 --coords 0..9 --dim 20 --out o.npy",
];

/// The words that command lines are made of.
pub(crate) struct Lines {
    subcommands: Vec<(String, Vec<Arg>)>,
    files: Vec<OsString>,
}

impl Lines {
    pub(crate) fn new(folder: &Folder) -> Lines {
        let mut command = corrnoise_cli::Cli::command();
        command.build();
        let list = command
            .get_subcommands()
            .map(|sub| (sub.get_name().to_owned(), sub.get_arguments().cloned().collect()));
        let more = [
            "p.json",
            "o.npy",
            "p.svg",
            "p.PNG",
            "é.svg",
            ".",
            "missing/o.npy",
            "blt.json/o",
            "/dev/null",
            "/dev/full",
        ];
        let files = folder.names().cloned().chain(more.map(OsString::from)).chain(["x".repeat(300).into()]);
        Lines { subcommands: list.collect(), files: files.collect() }
    }

    pub(crate) fn line(&self, random: &mut Random) -> Line {
        let mut words: Vec<OsString> = if random.below(3) > 0 {
            let line = random.pick(&ANSWERED).split(' ');
            line.map(|word| if word == "KEY" { KEY.into() } else { word.into() }).collect()
        } else {
            let (name, _) = random.pick(&self.subcommands);
            vec![name.into()]
        };
        let sub = self.subcommands.iter().find(|(name, _)| words[0] == name.as_str()).expect("a subcommand");
        for _ in 0..random.below(5) {
            self.change(random, &sub.1, &mut words);
        }
        let measures = words.iter().any(|word| word == "bench" || word == "verify");
        if measures {
            self.spoil(random, &mut words);
        }
        // The word `-h=x` asks for help too.
        let asks_for_help = |word: &OsString| {
            let word = word.to_string_lossy();
            ["--help", "-h", "--version", "-V"].iter().any(|flag| word.starts_with(flag))
        };
        let spoilt = measures && !words.iter().any(asks_for_help);
        Line { words, spoilt }
    }

    /// Adds a flag, or changes, removes, repeats or moves a word.
    fn change(&self, random: &mut Random, flags: &[Arg], words: &mut Vec<OsString>) {
        let at = random.below(words.len().max(1));
        match random.below(10) {
            0..4 => self.add(random, flags, words),
            _ if words.is_empty() => {}
            4..7 if at > 0 => words[at] = self.value(random, None),
            7 if at > 0 => drop(words.remove(at)),
            8 => words.insert(random.below(words.len() + 1), words[at].clone()),
            9 => {
                let other = random.below(words.len());
                words.swap(at, other);
            }
            _ => {}
        }
    }

    /// Adds a flag with its value, without it, or with one that it does not take.
    fn add(&self, random: &mut Random, flags: &[Arg], words: &mut Vec<OsString>) {
        let flag = random.pick(flags);
        let name = match (flag.get_long(), flag.get_short()) {
            (Some(long), short) if short.is_none() || random.below(2) == 0 => Some(format!("--{long}")),
            (_, Some(short)) => Some(format!("-{short}")),
            _ => None,
        };
        let takes_value = matches!(flag.get_action(), ArgAction::Set | ArgAction::Append);
        let value = (takes_value != (random.below(12) == 0)).then(|| self.value(random, Some(flag)));
        match (name, value) {
            (Some(name), Some(value)) if random.below(3) == 0 => {
                let mut word = OsString::from(name + "=");
                word.push(value);
                words.push(word);
            }
            (name, value) => words.extend(name.map(OsString::from).into_iter().chain(value)),
        }
    }

    /// A value; for a flag, it is mostly one of the flag's kind.
    fn value(&self, random: &mut Random, flag: Option<&Arg>) -> OsString {
        let named: Vec<String> = flag.map_or(vec![], |flag| {
            flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
        });
        if !named.is_empty() && random.below(3) > 0 {
            return random.pick(&named).into();
        }
        match random.below(16) {
            0..6 => random.pick(&NUMBERS).into(),
            6..9 => random.pick(&WORDS).into(),
            9..11 => random.pick(&STRATEGIES).into(),
            11..14 => random.pick(&self.files).into(),
            14 => random.pick(&[KEY.to_owned(), "9".repeat(10_000), "0".repeat(64)]).into(),
            _ => not_text(),
        }
    }

    /// Makes sure that a command that measures this machine is refused before it begins.
    fn spoil(&self, random: &mut Random, words: &mut Vec<OsString>) {
        let spoilers: &[&[&str]] = match words.iter().any(|word| word == "bench") {
            true => &[&["--mfu", "2"], &["--clipping-factor=0"], &["--nonsense"], &["--batch"], &["bench"]],
            false => &[&["missing.json"], &["cut.json"], &["--nonsense"], &["edited.json", "--quick"]],
        };
        words.retain(|word| word != "--");
        words.extend(random.pick(spoilers).iter().map(OsString::from));
    }
}

/// A word that is not valid text.
fn not_text() -> OsString {
    #[cfg(unix)]
    return std::os::unix::ffi::OsStringExt::from_vec(b"a\xff\xfe".to_vec());
    #[cfg(not(unix))]
    "a".into()
}
