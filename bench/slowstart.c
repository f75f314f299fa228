/* Messages to and fro in a row from the first on, on fresh connections. Prints half a round trip of each, and the
   time until one was fast. Usage: slowstart SECONDS SIZE/MESSAGES...; the time is not used. */
#include "pingpong.h"

int main(int argc, char **argv) { return pingpong_main("slowstart", EXCHANGE_ROW, argc, argv); }
