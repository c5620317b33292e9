mod clauses;
pub(crate) mod contents;
mod path;
mod pool;
mod stacks;
