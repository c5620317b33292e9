//! The bytes of a connection that have come and are not read, and those that wait to go.

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSlice;

/// The buffer of a connection that has not said much yet.
const INPUT_FIRST: usize = 8 << 10;
/// A piece of output that grows no further.
const CHUNK: usize = 64 << 10;
/// Data from this length on is sent from where it is.
const OWN_CHUNK: usize = 32 << 10;
/// The most pieces handed to one system call.
const SLICES: usize = 32;

/// Bytes that have come.
#[derive(Debug, Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    /// Where the next bytes go. Never empty, unless more was filled than `need` asked for.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer.resize(INPUT_FIRST, 0);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.compact();
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes of the space were filled.
    pub(crate) fn filled(&mut self, len: usize) {
        assert!(len <= self.buffer.len() - self.end, "more bytes than there was space for");
        self.end += len;
    }

    /// The bytes at hand.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// So many bytes were read.
    pub(crate) fn consume(&mut self, len: usize) {
        assert!(len <= self.end - self.start, "more bytes than there were");
        self.start += len;
    }

    /// Makes room for `len` bytes in all, counted from the first one at hand.
    pub(crate) fn need(&mut self, len: usize) {
        if self.buffer.len() < len {
            self.buffer.resize(len.next_power_of_two(), 0);
        }
        if self.buffer.len() - self.start < len {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
    }
}

/// Bytes that wait to go.
#[derive(Debug, Default)]
pub(crate) struct Output {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that have gone.
    gone: usize,
    len: usize,
    /// An empty chunk whose memory is used again.
    spare: Vec<u8>,
}

impl Output {
    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends what `write` writes.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK) {
            self.chunks.push_back(std::mem::take(&mut self.spare));
        }
        let chunk = self.chunks.back_mut().expect("pushed above");
        let before = chunk.len();
        write(chunk);
        self.len += chunk.len() - before;
    }

    /// True when [`Output::own`] would be cheaper than a copy.
    pub(crate) fn is_long(len: usize) -> bool {
        len >= OWN_CHUNK
    }

    /// Appends a piece as it is.
    pub(crate) fn own(&mut self, piece: Vec<u8>) {
        self.len += piece.len();
        self.chunks.push_back(piece);
        // What follows must not go into the piece, which has no room.
        self.chunks.push_back(Vec::new());
    }

    /// The first pieces to send.
    pub(crate) fn slices(&self) -> SmallVec<[IoSlice<'_>; SLICES]> {
        let mut skip = self.gone;
        let pieces = self.chunks.iter().map(|chunk| {
            let piece = &chunk[skip..];
            skip = 0;
            piece
        });
        pieces.filter(|piece| !piece.is_empty()).take(SLICES).map(IoSlice::new).collect()
    }

    /// So many bytes have gone.
    pub(crate) fn sent(&mut self, mut len: usize) {
        assert!(len <= self.len, "more bytes than waited");
        self.len -= len;
        while let Some(chunk) = self.chunks.front_mut() {
            let rest = chunk.len() - self.gone;
            if len < rest {
                self.gone += len;
                return;
            }
            len -= rest;
            self.gone = 0;
            if let Some(mut chunk) = self.chunks.pop_front()
                && chunk.capacity() <= 2 * CHUNK
            {
                chunk.clear();
                self.spare = chunk;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn output_comes_out_as_it_went_in(pieces in prop::collection::vec((0usize..70_000, any::<bool>()), 1..12),
                                          step in 9000usize..90_000) {
            let mut output = Output::default();
            let mut all = Vec::new();
            for (number, (len, own)) in pieces.into_iter().enumerate() {
                let piece = vec![number as u8; len];
                all.extend_from_slice(&piece);
                if own { output.own(piece) } else { output.write(|out| out.extend_from_slice(&piece)) }
            }
            prop_assert_eq!(output.len(), all.len());
            let mut seen = Vec::new();
            while output.len() > 0 {
                let flat: Vec<u8> = output.slices().iter().flat_map(|slice| slice.iter().copied()).collect();
                let len = step.min(flat.len());
                prop_assert!(len > 0);
                seen.extend_from_slice(&flat[..len]);
                output.sent(len);
            }
            prop_assert!(seen == all);
        }

        #[test]
        fn input_comes_out_as_it_went_in(steps in prop::collection::vec((1usize..9000, 0usize..9000), 1..40)) {
            let mut input = Input::default();
            let (mut written, mut read) = (0usize, 0usize);
            for (write, consume) in steps {
                input.need(input.bytes().len() + write);
                let space = input.space();
                prop_assert!(space.len() >= write || !space.is_empty());
                let len = write.min(space.len());
                for (at, byte) in space[..len].iter_mut().enumerate() { *byte = (written + at) as u8; }
                written += len;
                input.filled(len);
                let len = consume.min(input.bytes().len());
                prop_assert!(input.bytes().iter().enumerate().all(|(at, &byte)| byte == (read + at) as u8));
                input.consume(len);
                read += len;
            }
        }
    }
}
