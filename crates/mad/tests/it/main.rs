//! Tests of the native interface, in one program: a program for each file would compile the same code again.

mod processes;

mod messages;
mod misuse;
mod own_strategy;
mod threads;
