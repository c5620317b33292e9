//! Memory for file I/O, aligned for O_DIRECT.

/// The alignment that every file and device takes.
const ALIGN: usize = 4096;

/// An aligned piece of memory. It stays where it is when the value moves.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` zeroes.
    pub(crate) fn zeroed(len: usize) -> Self {
        let memory = vec![0; len + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN);
        assert!(start < ALIGN, "bytes can be aligned");
        Self { memory, start, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_stays_so_when_moved() {
        let buffer = Buffer::zeroed(8192);
        let address = buffer.bytes().as_ptr();
        assert_eq!(address as usize % ALIGN, 0);
        let moved = Box::new(buffer);
        assert_eq!(moved.bytes().as_ptr(), address);
        assert_eq!(moved.bytes(), vec![0; 8192]);
    }
}
