//! The guard of `Sampling::MinSep`: participants (federated clients) come by themselves, and the guard decides who may take part.
//!
//! The format of its file, in little-endian words of 64 bits except for the text and the hashes:
//!
//! ```text
//! "corrnoise guard\n"  version  plan fingerprint (32 bytes)  step  count
//! participant  last step  participations        count times, participants ascending
//! BLAKE3 of all of the above (32 bytes)
//! ```

use super::Sampling;
use crate::error::{Error, Result};
use crate::file::{Access, write_atomically};
use crate::plan::{Fingerprint, Plan};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::Path;

const MAGIC: &[u8; 16] = b"corrnoise guard\n";
const VERSION: u64 = 1;
const CHECKSUM_CONTEXT: &str = "corrnoise 2026 guard checksum v1";
/// The number of bytes before the participants, per participant, and after them.
const HEADER_LEN: usize = 16 + 8 + 32 + 8 + 8;
const ENTRY_LEN: usize = 24;
const CHECKSUM_LEN: usize = 32;

/// Admits participants at most as often, and at least as many steps apart, as the plan's [`Sampling::MinSep`] says.
///
/// # Guarantees
/// - A participant admitted at step `t` is refused until step `t + min_sep`, and after `max_participations` admissions for good.
/// - Steps never go back. A call that fails changes nothing.
/// - A guard that was saved and loaded goes on as if nothing had happened.
///
/// An admission counts even if the participant drops out afterwards. What was admitted after the last save is forgotten by a
/// crash: save *before* the step's sum is released. The file says who took part when, so only its owner may read it.
///
/// ```
/// use corrnoise_core::{Admission, Form, Guard, Plan, Sampling};
///
/// let sampling = Sampling::MinSep { min_sep: 10, max_participations: 3 };
/// let plan = Plan::new(100, Form::independent(), 1.0)?.with_sampling(sampling)?;
/// let mut guard = Guard::new(&plan)?;
/// assert_eq!(guard.admit(0, 77)?, Admission::Admitted);
/// assert_eq!(guard.admit(4, 77)?, Admission::TooSoon { next_step: 10 });
/// assert_eq!(guard.admit(10, 77)?, Admission::Admitted);
/// # Ok::<(), corrnoise_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    plan: Fingerprint,
    num_steps: u64,
    min_sep: u64,
    max_participations: u64,
    step: u64,
    participants: HashMap<u64, Past>,
}

/// The past admissions of a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Past {
    last_step: u64,
    participations: u64,
}

/// The guard's answer to a participant. One who is not admitted must not contribute to the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a participant who is not admitted must not contribute"]
pub enum Admission {
    /// The participant takes part in this step.
    Admitted,
    /// The participant took part too recently, or in this step already.
    TooSoon {
        /// The first step that would admit this participant; the plan may end before it.
        next_step: u64,
    },
    /// The participant took part as often as the plan allows.
    Exhausted,
}

impl Guard {
    /// A guard for a new run of a plan whose sampling is `MinSep`.
    pub fn new(plan: &Plan) -> Result<Guard> {
        let Some(Sampling::MinSep { min_sep, max_participations }) = plan.sampling() else {
            let reason = "a guard needs sampling by min_sep; other batches are drawn by Sampler";
            return Err(Error::Plan(reason.into()));
        };
        let (num_steps, plan) = (plan.num_steps(), plan.fingerprint());
        Ok(Guard { plan, num_steps, min_sep, max_participations, step: 0, participants: HashMap::new() })
    }

    /// Asks whether a participant may take part in a step, and records it if so. Steps may repeat and skip, but never go back.
    pub fn admit(&mut self, step: u64, participant: u64) -> Result<Admission> {
        let answer = self.eligible(step, participant)?;
        self.step = step;
        if answer == Admission::Admitted {
            let past =
                self.participants.entry(participant).or_insert(Past { last_step: step, participations: 0 });
            *past = Past { last_step: step, participations: past.participations + 1 };
        }
        Ok(answer)
    }

    /// What [`Guard::admit`] would answer now. Nothing is recorded, so that whoever chooses participants at random can choose among
    /// those who may take part; each of the chosen ones is then admitted.
    pub fn eligible(&self, step: u64, participant: u64) -> Result<Admission> {
        if step >= self.num_steps {
            return Err(Error::PastEnd { step, num_steps: self.num_steps });
        }
        if step < self.step {
            let expected = format!("at least {}: a guard's steps do not go back", self.step);
            return Err(Error::parameter("step", step, expected));
        }
        let Some(Past { last_step, participations }) = self.participants.get(&participant).copied() else {
            return Ok(Admission::Admitted);
        };
        if participations >= self.max_participations {
            return Ok(Admission::Exhausted);
        }
        let next_step = last_step.saturating_add(self.min_sep);
        Ok(if step < next_step { Admission::TooSoon { next_step } } else { Admission::Admitted })
    }

    /// The latest step that was asked for: a resumed run continues there or later.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Writes the guard for its owner alone; the file appears whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = self.to_bytes();
        write_atomically(path, Access::Owner, |file| {
            file.write_all(&bytes).map_err(Error::io("write guard", path))
        })
    }

    /// Reads a guard of this plan; a file that is damaged, cut off or of another plan is refused.
    pub fn load(path: impl AsRef<Path>, plan: &Plan) -> Result<Guard> {
        let path = path.as_ref();
        let mut guard = Guard::new(plan)?;
        let bytes = read(path).map_err(Error::io("read guard", path))?;
        guard.restore(&bytes).map_err(|reason| Error::Checkpoint { path: path.to_owned(), reason })?;
        Ok(guard)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + ENTRY_LEN * self.participants.len() + CHECKSUM_LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.plan.0);
        bytes.extend_from_slice(&self.step.to_le_bytes());
        bytes.extend_from_slice(&(self.participants.len() as u64).to_le_bytes());
        // Participants are sorted, so that equal guards give equal files.
        let mut participants: Vec<_> = self.participants.iter().collect();
        participants.sort_unstable_by_key(|(participant, _)| **participant);
        for (participant, past) in participants {
            for word in [*participant, past.last_step, past.participations] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes.extend_from_slice(&checksum(&bytes));
        bytes
    }

    /// Restores the guard from the bytes of a file, or says what is wrong with them.
    fn restore(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        let len = bytes.len();
        if !bytes.starts_with(MAGIC) {
            return Err("it is not the file of a guard".into());
        }
        if len < HEADER_LEN + CHECKSUM_LEN {
            let least = HEADER_LEN + CHECKSUM_LEN;
            return Err(format!("it has {len} bytes, at least {least} are needed: it was cut off"));
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if word(16) != VERSION {
            return Err(format!("file version {}: this library reads version {VERSION}", word(16)));
        }
        let (content, sum) = bytes.split_at(len - CHECKSUM_LEN);
        if checksum(content) != sum {
            return Err("its checksum is not that of its content: it was damaged or cut off".into());
        }
        let plan = Fingerprint(content[24..56].try_into().expect("32 bytes"));
        if plan != self.plan {
            return Err(format!("it belongs to plan {plan}, this is plan {}", self.plan));
        }
        let (step, count) = (word(56), word(64));
        let entries = &content[HEADER_LEN..];
        if entries.len() as u128 != u128::from(count) * ENTRY_LEN as u128 || step >= self.num_steps {
            return Err(format!(
                "it says {count} participants at step {step}, and has {} bytes of them",
                entries.len()
            ));
        }
        let mut previous = None;
        for at in (HEADER_LEN..content.len()).step_by(ENTRY_LEN) {
            let [participant, last_step, participations] = [0, 8, 16].map(|field| word(at + field));
            let possible = last_step <= step && (1..=self.max_participations).contains(&participations);
            if !possible || previous.is_some_and(|previous| previous >= participant) {
                return Err(format!(
                    "participant {participant}, {participations} times until step {last_step}, cannot be in it"
                ));
            }
            previous = Some(participant);
            self.participants.insert(participant, Past { last_step, participations });
        }
        self.step = step;
        Ok(())
    }
}

/// The bytes of a file; if it is not a guard's, only its beginning, because a device may have no end.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
    if bytes == MAGIC {
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn checksum(content: &[u8]) -> [u8; CHECKSUM_LEN] {
    blake3::derive_key(CHECKSUM_CONTEXT, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chacha::{ChaCha, Rounds};
    use crate::form::Form;
    use crate::sampler::scheme::Purpose;
    use crate::sampler::words::Words;

    fn plan(min_sep: u64, max_participations: u64) -> Plan {
        let sampling = Sampling::MinSep { min_sep, max_participations };
        Plan::new(60, Form::independent(), 1.0).unwrap().with_sampling(sampling).unwrap()
    }

    /// The answer by the rules, from the list of all admissions.
    fn expected(history: &[(u64, u64)], plan: (u64, u64), step: u64, participant: u64) -> Admission {
        let (min_sep, max_participations) = plan;
        let steps: Vec<u64> = history.iter().filter(|(_, who)| *who == participant).map(|x| x.0).collect();
        if steps.len() as u64 == max_participations {
            return Admission::Exhausted;
        }
        let near = steps.iter().find(|&&earlier| step - earlier < min_sep);
        near.map_or(Admission::Admitted, |earlier| Admission::TooSoon { next_step: earlier + min_sep })
    }

    /// Compares random participants with the rules, with a save and a load at every step.
    #[test]
    fn answers_are_those_of_the_whole_history() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard");
        let cipher = ChaCha::new(&[1; 32], Rounds::R8);
        let mut seen = [0; 3];
        for (case, rule) in [(1, 2), (1, 100), (4, 3), (7, 100), (100, 5)].into_iter().enumerate() {
            let plan = plan(rule.0, rule.1);
            let mut words = Words::new(&cipher, Purpose::Join, case as u64, 0);
            let (mut guard, mut history) = (Guard::new(&plan).unwrap(), Vec::new());
            for step in 0..60 {
                for _ in 0..words.below(9) {
                    let participant = words.below(11).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    let before = guard.clone();
                    let asked = guard.eligible(step, participant).unwrap();
                    assert_eq!(guard, before, "a question has no consequence");
                    let answer = guard.admit(step, participant).unwrap();
                    assert_eq!(asked, answer);
                    assert_eq!(answer, expected(&history, rule, step, participant), "{rule:?}, {step}");
                    match answer {
                        Admission::Admitted => history.push((step, participant)),
                        Admission::TooSoon { .. } => seen[1] += 1,
                        Admission::Exhausted => seen[2] += 1,
                    }
                }
                guard.save(&path).unwrap();
                let loaded = Guard::load(&path, &plan).unwrap();
                assert_eq!(loaded, guard);
                guard = loaded;
            }
            seen[0] += history.len();
        }
        assert!(seen.iter().all(|count| *count > 50), "every answer was met: {seen:?}");
    }

    #[test]
    fn a_participant_comes_once_per_step() {
        let mut guard = Guard::new(&plan(1, 5)).unwrap();
        assert_eq!(guard.admit(3, 8).unwrap(), Admission::Admitted);
        assert_eq!(guard.admit(3, 8).unwrap(), Admission::TooSoon { next_step: 4 });
        assert_eq!(guard.admit(4, 8).unwrap(), Admission::Admitted);
        let mut far = Guard::new(&plan(u64::MAX, 5)).unwrap();
        assert_eq!(far.admit(3, 8).unwrap(), Admission::Admitted);
        assert_eq!(far.admit(59, 8).unwrap(), Admission::TooSoon { next_step: u64::MAX });
    }

    #[test]
    fn steps_stay_in_order_and_in_the_plan() {
        let mut guard = Guard::new(&plan(2, 2)).unwrap();
        assert_eq!(guard.admit(5, 1).unwrap(), Admission::Admitted);
        let before = guard.clone();
        let error = guard.admit(4, 2).unwrap_err().to_string();
        assert!(error.contains("step is 4: expected at least 5"), "{error}");
        assert_eq!(guard.eligible(4, 2).unwrap_err().to_string(), error);
        assert!(matches!(guard.admit(60, 2), Err(Error::PastEnd { step: 60, num_steps: 60 })));
        assert!(matches!(guard.eligible(60, 2), Err(Error::PastEnd { step: 60, num_steps: 60 })));
        assert_eq!((guard.step(), &guard), (5, &before));
        let error = Guard::new(&Plan::new(5, Form::independent(), 1.0).unwrap()).unwrap_err().to_string();
        assert!(error.contains("Sampler"), "{error}");
    }

    #[test]
    fn a_damaged_or_foreign_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard");
        let plan_here = plan(2, 3);
        let mut guard = Guard::new(&plan_here).unwrap();
        for (step, participant) in [(0, 9), (1, 2), (2, 9), (2, 500)] {
            assert_eq!(guard.admit(step, participant).unwrap(), Admission::Admitted);
        }
        let bytes = guard.to_bytes();
        let load = |bytes: &[u8], plan: &Plan| {
            std::fs::write(&path, bytes).unwrap();
            Guard::load(&path, plan).map_err(|error| error.to_string())
        };
        assert_eq!(load(&bytes, &plan_here).unwrap(), guard);
        #[cfg(unix)]
        {
            let error = Guard::load("/dev/zero", &plan_here).unwrap_err().to_string();
            assert!(error.contains("not the file of a guard"), "{error}");
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                assert!(load(&damaged, &plan_here).is_err(), "byte {at}");
            }
            assert!(load(&bytes[..at], &plan_here).is_err(), "cut at {at}");
        }
        let message = |bytes: &[u8], plan: &Plan| load(bytes, plan).unwrap_err();
        assert!(message(&[&bytes[..], b"more"].concat(), &plan_here).contains("damaged"));
        assert!(message(&bytes, &plan(2, 4)).contains("belongs to plan"));
        assert!(message(&bytes[..60], &plan_here).contains("cut off"));
        assert!(message(b"{}", &plan_here).contains("not the file of a guard"));
        let other_version = [&bytes[..16], &[7], &bytes[17..]].concat();
        assert!(message(&other_version, &plan_here).contains("version 7"));
    }

    /// A file with a right checksum and impossible content was made by something else than this library.
    #[test]
    fn impossible_content_is_refused() {
        let plan = plan(2, 3);
        let forged = |participants: &[(u64, u64, u64)], step: u64| {
            let mut guard = Guard { step, ..Guard::new(&plan).unwrap() };
            for &(participant, last_step, participations) in participants {
                guard.participants.insert(participant, Past { last_step, participations });
            }
            Guard::new(&plan).unwrap().restore(&guard.to_bytes())
        };
        assert_eq!(forged(&[(1, 5, 3), (2, 0, 1)], 5), Ok(()));
        assert!(forged(&[(1, 6, 3)], 5).unwrap_err().contains("until step 6"));
        assert!(forged(&[(1, 5, 4)], 5).unwrap_err().contains("4 times"));
        assert!(forged(&[(1, 5, 0)], 5).unwrap_err().contains("0 times"));
        assert!(forged(&[], 60).unwrap_err().contains("step 60"));
    }

    #[cfg(unix)]
    #[test]
    fn only_the_owner_reads_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("guard");
        Guard::new(&plan(2, 3)).unwrap().save(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
