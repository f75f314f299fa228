# A PMI-1 server for jobs of one rank that connect to it. Prints its address, and each job that joins and ends.
import socket
import threading

server = socket.create_server(("127.0.0.1", 0))
print(f"127.0.0.1:{server.getsockname()[1]}", flush=True)


def serve(connection):
    values = {}
    for line in connection.makefile("r"):
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        match words.get("cmd"):
            case "initack":
                print("server: joined", flush=True)
                answer = "cmd=initack\ncmd=set size=1\ncmd=set rank=0\ncmd=set debug=0"
            case "init":
                answer = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                answer = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"
            case "get_my_kvsname":
                answer = "cmd=my_kvsname kvsname=job"
            case "get_universe_size":
                answer = "cmd=universe_size size=1"
            case "get_appnum":
                answer = "cmd=appnum appnum=0"
            case "put":
                values[words["key"]] = words["value"]
                answer = "cmd=put_result rc=0"
            case "get" if words["key"] in values:
                answer = "cmd=get_result rc=0 value=" + values[words["key"]]
            case "get":
                answer = "cmd=get_result rc=-1"
            case "barrier_in":
                answer = "cmd=barrier_out rc=0"
            case "finalize":
                print("server: finalized", flush=True)
                answer = "cmd=finalize_ack"
            case _:
                answer = "cmd=unknown rc=-1"
        connection.sendall(answer.encode() + b"\n")


while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
