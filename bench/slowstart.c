/* Messages to and fro in a row from the first on, on connections that have carried nothing before: half a round trip of
   each, and how long it took until one was fast. Usage: slowstart SECONDS SIZE/MESSAGES...; the time is not used. */
#include "pingpong.h"

int main(int argc, char **argv) { return pingpong_main("slowstart", EXCHANGE_ROW, argc, argv); }
