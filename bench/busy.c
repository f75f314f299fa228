/* A program that only computes, until its parent has ended. Usage: busy */
#include <unistd.h>

#include "compute.h"

int main(void) {
    pid_t parent = getppid();
    compute_calibrate();
    while (getppid() == parent) compute_us(1000);
    return 0;
}
