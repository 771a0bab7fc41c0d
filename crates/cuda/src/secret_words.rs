//! A list of secret words that is filled again for every step.

use corrnoise_core::secret::Secret;
use std::ops::Deref;

/// A list of words of bounded length, in memory that is wiped at its end. It never grows: that would leave its content behind.
pub(crate) struct SecretWords {
    words: Secret<u32>,
    len: usize,
}

impl SecretWords {
    /// An empty list with room for `capacity` words.
    pub(crate) fn new(capacity: usize) -> SecretWords {
        SecretWords { words: Secret::zeroed(capacity), len: 0 }
    }

    /// Empties the list. Its words stay until they are overwritten, or the list is dropped.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends a word, or returns nothing if there is no room for it.
    pub(crate) fn push(&mut self, word: u32) -> Option<()> {
        *self.words.get_mut(self.len)? = word;
        self.len += 1;
        Some(())
    }

    /// Appends zeros and returns them to be written, or nothing if there is no room for them.
    pub(crate) fn extend(&mut self, len: usize) -> Option<&mut [u32]> {
        let new = self.words.get_mut(self.len..self.len.checked_add(len)?)?;
        new.fill(0);
        self.len += len;
        Some(new)
    }

    /// Takes over the words of a list of the same capacity.
    pub(crate) fn clone_from(&mut self, other: &SecretWords) {
        self.words[..other.len].copy_from_slice(other);
        self.len = other.len;
    }
}

impl Deref for SecretWords {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.words[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_what_was_pushed_and_no_more_than_it_has_room_for() {
        let (mut list, mut copy) = (SecretWords::new(3), SecretWords::new(3));
        assert_eq!([7, 8, 9, 10].map(|word| list.push(word).is_some()), [true, true, true, false]);
        copy.clone_from(&list);
        list.clear();
        list.push(1);
        assert_eq!((&list[..], &copy[..]), (&[1][..], &[7, 8, 9][..]));
        copy.clone_from(&list);
        assert_eq!(copy[..], [1]);
        assert_eq!(list.extend(2).map(|new| new.to_vec()), Some(vec![0, 0]));
        assert!(list.extend(1).is_none() && list[..] == [1, 0, 0]);
    }
}
