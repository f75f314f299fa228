/* Half a round trip between two ranks, for each size. Prints a line of JSON each.
   Usage: pingpong SECONDS_PER_SIZE SIZE[/SILENCE_US]...; the silence precedes each message. */
#include "pingpong.h"

int main(int argc, char **argv) { return pingpong_main("pingpong", EXCHANGE_PINGPONG, argc, argv); }
