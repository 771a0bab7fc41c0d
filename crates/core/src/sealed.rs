//! States that are sealed: encrypted and authenticated under a run's key, for files that others may read.
//!
//! The format: 16 bytes "corrnoise sealed", its version as a little-endian word of 64 bits, a tag of 32 bytes, the encrypted content. The
//! tag is a keyed BLAKE3 hash of all bytes before it and of the content; the content is encrypted with the output stream of a keyed
//! BLAKE3 hash of the tag, under another key. So nothing random is needed, and equal contents give equal bytes: that two sealed
//! states are the same is all that they tell, beside their length.

use crate::error::{Error, Result};
use crate::key::{MAC_STACK, RunKey, as_key, derive};
use crate::secret::{Secret, on_clean_stack};

const MAGIC: &[u8; 16] = b"corrnoise sealed";
const VERSION: u64 = 1;
const HEADER_LEN: usize = 16 + 8;
const TAG_LEN: usize = 32;
/// The number of bytes that are encrypted at a time.
const CHUNK: usize = 1 << 14;

impl RunKey {
    /// Encrypts and authenticates a state under this run's key.
    pub fn seal(&self, content: &[u8]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(HEADER_LEN + TAG_LEN + content.len());
        sealed.extend_from_slice(MAGIC);
        sealed.extend_from_slice(&VERSION.to_le_bytes());
        let tag = self.sealed_tag(&sealed, content);
        sealed.extend_from_slice(&tag);
        sealed.extend_from_slice(content);
        self.encrypt(&tag, &mut sealed[HEADER_LEN + TAG_LEN..]);
        sealed
    }

    /// Whether these bytes begin as sealed ones do.
    pub fn is_sealed(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Decrypts what `seal` made under the same run's key; bytes that were changed, or sealed under another key, plan or run, are refused.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>> {
        let refuse = |reason: String| Error::Checkpoint { path: "(sealed)".into(), reason };
        if !RunKey::is_sealed(sealed) || sealed.len() < HEADER_LEN + TAG_LEN {
            return Err(refuse(format!("its {} bytes are not those of a sealed state", sealed.len())));
        }
        let (header, rest) = sealed.split_at(HEADER_LEN);
        let version = u64::from_le_bytes(header[16..].try_into().expect("8 bytes"));
        if version != VERSION {
            return Err(refuse(format!("sealed as version {version}: this library reads version {VERSION}")));
        }
        let (tag, content) = rest.split_at(TAG_LEN);
        let tag: [u8; TAG_LEN] = tag.try_into().expect("32 bytes");
        let mut content = zeroize::Zeroizing::new(content.to_vec());
        self.encrypt(&tag, &mut content);
        // Compared in constant time.
        if blake3::Hash::from_bytes(self.sealed_tag(header, &content)) != blake3::Hash::from_bytes(tag) {
            return Err(refuse("it was sealed under another key, plan or run, or changed afterwards".into()));
        }
        Ok(std::mem::take(&mut *content))
    }

    fn sealed_tag(&self, header: &[u8], content: &[u8]) -> [u8; TAG_LEN] {
        let key = derive("corrnoise 2026 sealed state tag v1", &[self.bytes()]);
        let mut tag = [0; TAG_LEN];
        on_clean_stack::<MAC_STACK, _>(|| {
            blake3::Hasher::new_keyed(as_key(&key))
                .update(header)
                .update(content)
                .finalize_xof()
                .fill(&mut tag);
        });
        tag
    }

    /// Adds the stream that belongs to a tag: what was encrypted becomes clear, and the other way round.
    fn encrypt(&self, tag: &[u8; TAG_LEN], content: &mut [u8]) {
        let key = derive("corrnoise 2026 sealed state stream v1", &[self.bytes()]);
        let mut stream = Secret::<u8>::zeroed(CHUNK);
        on_clean_stack::<MAC_STACK, _>(|| {
            let mut reader = blake3::Hasher::new_keyed(as_key(&key)).update(tag).finalize_xof();
            for chunk in content.chunks_mut(CHUNK) {
                reader.fill(&mut stream[..chunk.len()]);
                chunk.iter_mut().zip(&stream[..]).for_each(|(byte, mask)| *byte ^= mask);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_opens_under_the_same_key_alone() {
        let (key, other) = (RunKey::from_bytes([3; 32]), RunKey::from_bytes([4; 32]));
        for len in [0, 1, 63, CHUNK - 1, CHUNK, 3 * CHUNK + 5] {
            let content: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let sealed = key.seal(&content);
            assert_eq!(sealed.len(), len + HEADER_LEN + TAG_LEN);
            assert!(
                RunKey::is_sealed(&sealed) && sealed == key.seal(&content),
                "equal contents give equal bytes"
            );
            assert_eq!(key.open(&sealed).unwrap(), content);
            assert!(other.open(&sealed).unwrap_err().to_string().contains("another key, plan or run"));
            assert_ne!(&other.seal(&content)[HEADER_LEN..], &sealed[HEADER_LEN..]);
            assert!(
                len < 60 || !sealed.windows(8).any(|bytes| bytes == &content[..8]),
                "nothing of it is seen"
            );
        }
    }

    /// Every byte counts, and a text that was cut off or lengthened is no other text.
    #[test]
    fn what_was_changed_is_refused() {
        let key = RunKey::from_bytes([3; 32]);
        let sealed = key.seal(b"twenty bytes of text");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 0x10;
            assert!(key.open(&changed).is_err(), "byte {at}");
            assert!(key.open(&sealed[..at]).is_err(), "cut at {at}");
        }
        assert!(key.open(&[&sealed[..], b"x"].concat()).is_err());
        let mut later = sealed.clone();
        later[16] = 2;
        let error = key.open(&later).unwrap_err().to_string();
        assert!(error.contains("version 2: this library reads version 1"), "{error}");
    }

    /// A known answer: other versions of this library must read what this one sealed.
    #[test]
    fn the_format_stays() {
        let sealed = RunKey::from_bytes([7; 32]).seal(b"state");
        let digits: String = sealed.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            digits,
            "636f72726e6f697365207365616c656401000000000000005e62d6afb1a74cdb960a746e4c4748c25a91823aa50678ac5e35506142e5014584ce85be21"
        );
    }
}
