//! Instruments: the timing library, ping-pongs, comparisons and plots.
