/* Quality of the instruments' clock: source, overhead, resolution, and a known sleep as measured by the system and by
   the clock. Usage: clock SECONDS. Fails if both differ by more than 0.1 %. */
#include "samples.h"

int main(int argc, char **argv) {
    double seconds = argc > 1 ? program_number("clock", "the time to sleep", argv[1], 60) : 0.5;
    clock_calibrate();
    double off = clock_check(seconds);
    clock_print(stdout);
    putchar('\n');
    if (off > 1e-3) fprintf(stderr, "clock: differs from the system's by %.3f %%\n", off * 100);
    return off > 1e-3;
}
