//! Tests of plans, in one program: a program for each file would compile the same code again.

mod machine;
mod planned;

mod choice;
mod curves;
mod definition;
mod intercomm;
mod multisite;
mod order;
mod pairs;
mod prediction;
