//! The options of a request by name, and the refusal of options that do not fit together. Every front end spells the names in its own
//! way: `--batch-size` on the command line, `batch_size` as a keyword.

use std::fmt::{self, Display};

macro_rules! option_names {
    ($($variant:ident $name:literal),+ $(,)?) => {
        /// An option of a [`Request`](crate::Request), named like its field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OptionName {
            $(#[doc = concat!("The field `", $name, "` of a request.")] $variant,)+
        }

        impl OptionName {
            /// Every option, in the order of a request's fields.
            pub const ALL: &[OptionName] = &[$(OptionName::$variant),+];

            /// The name of the field, and of the keyword in other languages.
            pub fn keyword(self) -> &'static str {
                match self {
                    $(OptionName::$variant => $name,)+
                }
            }
        }
    };
}

option_names! {
    Steps "steps",
    Epochs "epochs",
    DatasetSize "dataset_size",
    BatchSize "batch_size",
    Participation "participation",
    Setting "setting",
    MinSep "min_sep",
    MaxParticipations "max_participations",
    Epsilon "epsilon",
    Delta "delta",
    Mu "mu",
    NoiseMultiplier "noise_multiplier",
    ClipNorm "clip_norm",
    Adjacency "adjacency",
    Unit "unit",
    Workload "workload",
    Objective "objective",
    MaxStateBytes "max_state_bytes",
    Strategy "strategy",
    Sampling "sampling",
    Claims "claims",
    Rounds "rounds",
}

/// Options that do not fit together. `Display` spells them as keywords, [`OptionError::spelled`] in any other way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OptionError {
    /// One of several options is needed, and none was given.
    Missing {
        /// The quantity that the options express.
        what: &'static str,
        /// The options of which one is needed.
        one_of: &'static [OptionName],
    },
    /// More than one option was given for the same quantity.
    Several {
        /// The quantity that the options express.
        what: &'static str,
        /// The options of which one is expected.
        one_of: &'static [OptionName],
    },
    /// An option needs others beside it.
    Needs {
        /// The option that was given.
        option: OptionName,
        /// Its value, where only this value needs the others.
        value: Option<&'static str>,
        /// The options that it needs.
        others: &'static [OptionName],
    },
    /// Two options were given of which one takes the place of the other.
    Excludes {
        /// The option that takes the other's place.
        option: OptionName,
        /// The option that is left out beside it.
        other: OptionName,
    },
    /// A number for federated training beside another setting.
    OnlyFederated {
        /// The option that was given.
        option: OptionName,
        /// The value that was given.
        value: u64,
    },
    /// A sampling scheme for the comparison of all strategies, which chooses its own.
    SamplingOfAll,
    /// The engine of the strategy that was asked for holds more memory than is allowed.
    State {
        /// Bytes per parameter, with the rows made ahead.
        held: String,
        /// The value of `max_state_bytes`.
        limit: u64,
    },
}

impl OptionError {
    /// The message with every option spelled by the front end.
    pub fn spelled(&self, spell: impl Fn(OptionName) -> String) -> String {
        let list = |options: &[OptionName], word: &str| {
            let names: Vec<String> = options.iter().map(|option| spell(*option)).collect();
            match names.split_last() {
                Some((last, [])) => last.clone(),
                Some((last, others)) => format!("{} {word} {last}", others.join(", ")),
                None => String::new(),
            }
        };
        match self {
            OptionError::Missing { what, one_of } => format!("no {what}: expected {}", list(one_of, "or")),
            OptionError::Several { what, one_of } => {
                format!("two {what}s: expected one of {}", list(one_of, "and"))
            }
            OptionError::Needs { option, value, others } => {
                let value = value.map_or_else(String::new, |value| format!(" {value}"));
                format!("{}{value} needs {}", spell(*option), list(others, "and"))
            }
            OptionError::Excludes { option, other } => {
                format!("{} takes the place of {}: leave one of them out", spell(*option), spell(*other))
            }
            OptionError::OnlyFederated { option, value } => format!(
                "{} {value} is for {} federated; for a pipeline of your own give {} minsep:B,K",
                spell(*option),
                spell(OptionName::Setting),
                spell(OptionName::Participation)
            ),
            OptionError::SamplingOfAll => format!(
                "{} is for one {}: auto compares them under cyclic and Poisson sampling and balls-in-bins, more of the last where that is given, or spaced-poisson:B with {} confident, or under random-allocation or truncated-poisson alone; leave it out, or say none",
                spell(OptionName::Sampling),
                spell(OptionName::Strategy),
                spell(OptionName::Claims)
            ),
            OptionError::State { held, limit } => format!(
                "state is {held} bytes per parameter: expected at most {limit}, as {} says",
                spell(OptionName::MaxStateBytes)
            ),
        }
    }
}

impl Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(|option| option.keyword().into()))
    }
}

impl std::error::Error for OptionError {}
