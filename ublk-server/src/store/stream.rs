//! Copies that leave the processor's caches alone.
//!
//! What a copy command moves is not read again at once, and there is much of it: stores that pass the caches by save the
//! read of each line that is to be overwritten. The one file with `unsafe` for those instructions.

/// From here on the caches are passed by: a copy of less may still be in them when it is read.
const LEAST: usize = 256 << 10;

/// Copies `from` to `to`, of the same length. Panics when the lengths differ.
pub(super) fn copy(to: &mut [u8], from: &[u8]) {
    if cfg!(target_arch = "x86_64") && to.len() >= LEAST {
        past_caches(to, from)
    } else {
        to.copy_from_slice(from)
    }
}

#[cfg(target_arch = "x86_64")]
fn past_caches(to: &mut [u8], from: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WORD: usize = size_of::<__m128i>();
    assert_eq!(to.len(), from.len());
    let head = to.as_ptr().align_offset(WORD).min(to.len());
    let (to_head, to) = to.split_at_mut(head);
    let (from_head, from) = from.split_at(head);
    to_head.copy_from_slice(from_head);
    let (to_lines, to_tail) = to.as_chunks_mut::<{ 4 * WORD }>();
    let (from_lines, from_tail) = from.as_chunks::<{ 4 * WORD }>();
    for (to, from) in to_lines.iter_mut().zip(from_lines) {
        let (to, from): (*mut __m128i, *const __m128i) = (to.as_mut_ptr().cast(), from.as_ptr().cast());
        // SAFETY: both are four words long and valid, being references to arrays of that length, and do not overlap,
        // one being exclusive. The reads need no alignment. The writes are aligned to a word: the first line begins
        // where `align_offset` says, and a line is four words. SSE2 belongs to every x86_64.
        unsafe {
            let words = [0, 1, 2, 3].map(|n| _mm_loadu_si128(from.add(n)));
            [0, 1, 2, 3].into_iter().zip(words).for_each(|(n, word)| _mm_stream_si128(to.add(n), word));
        }
    }
    // SAFETY: SSE2 belongs to every x86_64. The fence makes the stores visible before any later one, such as that of the
    // lock under which the copy is finished: streaming stores are not ordered otherwise.
    unsafe { _mm_sfence() };
    to_tail.copy_from_slice(from_tail);
}

#[cfg(not(target_arch = "x86_64"))]
fn past_caches(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_no_other_is_copied_from_and_to_any_place() {
        let from: Vec<u8> = (0..LEAST + 200).map(|at| (at * 31 + at / 251) as u8).collect();
        for (from_at, to_at, len) in
            [(0, 0, LEAST), (1, 0, LEAST + 1), (0, 1, LEAST + 63), (3, 17, LEAST + 64), (16, 31, LEAST - 1)]
        {
            let mut to = vec![0xA5; LEAST + 200];
            copy(&mut to[to_at..to_at + len], &from[from_at..from_at + len]);
            assert!(to[to_at..to_at + len] == from[from_at..from_at + len], "{from_at} to {to_at}, {len}");
            assert!(to[..to_at].iter().chain(&to[to_at + len..]).all(|&byte| byte == 0xA5));
        }
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn lengths_that_differ_are_a_bug() {
        copy(&mut vec![0; LEAST], &vec![0; LEAST + 1]);
    }
}
